"""``horovod.run``: a function on several processes, with the arguments of Horovod's."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bireme.errors import ConfigError

__all__ = ("run",)


class _HorovodArgs:
    """The flags of ``horovodrun`` as attributes; those that are not set are None."""

    def __init__(self, **given: Any) -> None:
        self.num_proc = 1
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def run(  # noqa: PLR0913
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    network_interfaces: Sequence[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Call ``func(*args, **kwargs)`` in several processes and return what each returned, by rank.

    Args:
        func: What to call.
        args: Its arguments.
        kwargs: Its named arguments.
        num_proc: How many processes.
        min_num_proc: Least number to start with where hosts are discovered.
        max_num_proc: Not used: membership of a job is fixed.
        slots: Processes on each discovered host that does not say.
        reset_limit: Not used.
        cooldown_range: Not used.
        hosts: Such as ``"localhost:2,leda:4"``.
        hostfile: A file of lines such as ``leda slots=4``.
        host_discovery_script: Prints hosts, ``leda:4`` in each line; asked once.
        start_timeout: Seconds until every process must have come.
        ssh_port: Port of ssh on the other hosts.
        ssh_identity_file: Key for them.
        disable_cache: Not used: nothing is cached.
        output_filename: A folder that keeps what each process prints.
        verbose: Not used.
        use_gloo: Not used: this is how it works anyway.
        use_mpi: Must not be set.
        mpi_args: Not used.
        network_interface: Older form of the next.
        network_interfaces: Not used: addresses are those by which hosts reach each other.
        executable: The Python to run.
        np: Older name of ``num_proc``.
        min_np: Older name of ``min_num_proc``.
        max_np: Older name of ``max_num_proc``.

    Raises:
        ConfigError: A ValueError: arguments contradict each other.
        FunctionFailed: A RuntimeError: the function raised on a process, or one died.
    """
    older: list[tuple[str, object, str]] = [
        ("np", np, "num_proc"),
        ("min_np", min_np, "min_num_proc"),
        ("max_np", max_np, "max_num_proc"),
        ("network_interface", network_interface, "network_interfaces"),
    ]
    for name, value, newer in older:
        if value is not None:
            warnings.warn(
                f"{name} is deprecated, use {newer} instead", DeprecationWarning, stacklevel=2
            )
    if hosts is not None and hostfile is not None:
        raise ConfigError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ConfigError("Argument use_gloo and use_mpi only allow one set True.")
    if use_mpi:
        raise ConfigError("use_mpi is for MPI builds; start the script with mpirun instead")
    from bireme.horovod.runner.launch import _run

    given = _HorovodArgs(
        num_proc=num_proc if np is None else np,
        min_num_proc=min_num_proc if min_np is None else min_np,
        slots=slots,
        hosts=hosts,
        hostfile=hostfile,
        host_discovery_script=host_discovery_script,
        start_timeout=start_timeout,
        ssh_port=ssh_port,
        ssh_identity_file=ssh_identity_file,
        output_filename=output_filename,
        executable=executable,
        run_func=(func, tuple(args), dict(kwargs or {})),
    )
    results: list[Any] = _run(given)
    return results
