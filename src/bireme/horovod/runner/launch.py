"""From the arguments of ``horovodrun`` and ``horovod.run`` to ``bireme run``."""

import subprocess
import sys
from typing import Any

from bireme.errors import ConfigError
from bireme.horovod import environment
from bireme.horovod.running import FunctionFailed, run

__all__ = ("flags",)

_ENDED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job "
    "to be terminated."
)


def flags(args: Any) -> list[str]:
    """Return the flags of ``bireme run`` that mean what ``horovodrun``'s arguments do.

    Args:
        args: Attributes named as in ``horovod.runner``; None where not set.

    Raises:
        ConfigError: The script that discovers hosts fails, or finds none.
    """
    found: list[str] = []
    hosts = args.hosts
    if args.host_discovery_script:
        hosts = _discovered(args.host_discovery_script, args.slots or 1)
    for flag, value in (
        ("-H", hosts),
        ("--hostfile", args.hostfile),
        ("-p", args.ssh_port),
        ("-i", args.ssh_identity_file),
        ("--output-filename", args.output_filename),
        ("--start-timeout", args.start_timeout),
    ):
        if value:
            found += [flag, str(value)]
    return found


def _run(args: Any) -> Any:
    """Run the function or the command of ``args``; the name is the one that scripts import.

    Raises:
        FunctionFailed: A RuntimeError: a process failed.
    """
    more = flags(args)
    if args.run_func is not None:
        function, given, named = _call_of(args.run_func)
        try:
            return run(
                function,
                given,
                named,
                num_proc=args.num_proc,
                options=more,
                executable=args.executable,
            )
        except FunctionFailed as error:
            raise FunctionFailed(f"{_ENDED} {error}", error.rank) from error.__cause__
    command = [sys.executable, "-m", "bireme", "run", "-np", str(args.num_proc), *more, "--"]
    status = subprocess.run([*command, *args.command], check=False).returncode
    if status:
        raise FunctionFailed(f"{_ENDED} The exit code is {status}.")
    return None


def _call_of(run_func: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return run_func if isinstance(run_func, tuple) else (run_func, (), {})


def _discovered(script: str, slots: int) -> str:
    """Return the hosts that a script prints, as ``-H`` takes them."""
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        capture_output=True,
        text=True,
        env=environment.read(),
        check=False,
    )
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not lines:
        raise ConfigError(
            f"{script} ended with exit code {done.returncode} and found {lines}: "
            f"{done.stderr.strip()}"
        )
    return ",".join(line if ":" in line else f"{line}:{slots}" for line in lines)
