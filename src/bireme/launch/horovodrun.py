"""The flags of ``horovodrun`` that ``bireme run`` takes, and what becomes of each. Pure.

Flags that tune collectives become the variables that Horovod has for them. Those that mean nothing
here say so once, and those whose meaning cannot be given yet are refused.

Source: ``horovod/runner/launch.py`` and ``runner/common/util/config_parser.py`` of Horovod 0.28.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bireme.errors import ConfigError, UnsupportedError

__all__ = ("FLAGS", "Flag", "add_horovodrun_options", "flags_variables", "notices_of")

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of horovodrun's.

    Args:
        names: How it is spelled.
        variable: The variable that it sets; empty where it sets none.
        kind: What it takes; ``None`` for a switch.
        convert: From what it takes to the variable's text.
        on: The text that a switch sets.
        nothing: Why it has no effect, where it has none.
        unsupported: What to do instead, where it is refused.
        count: How many values it takes, where it is more than one.
    """

    names: tuple[str, ...]
    variable: str = ""
    kind: Callable[[str], object] | None = None
    convert: Callable[[object], str] = str
    on: str = "1"
    nothing: str = ""
    unsupported: str = ""
    count: int | None = None

    @property
    def dest(self) -> str:
        """Where the parser keeps it."""
        longest = max(self.names, key=len)
        return "horovodrun_" + longest.lstrip("-").replace("-", "_")


def _mib_as_bytes(mib: object) -> str:
    return str(int(float(str(mib)) * _MIB))


def _noise(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


_ELASTIC = (
    "elastic jobs, whose number of processes changes, come with fault tolerance, which this "
    "version does not have; start a fixed number with -np"
)
_SWITCHES = (
    ("hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE"),
    ("hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER"),
    ("torus-allreduce", "HOROVOD_TORUS_ALLREDUCE"),
    ("autotune", "HOROVOD_AUTOTUNE"),
    ("timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES"),
)

FLAGS: tuple[Flag, ...] = (
    Flag(
        names=("--fusion-threshold-mb",),
        variable="HOROVOD_FUSION_THRESHOLD",
        kind=int,
        convert=_mib_as_bytes,
    ),
    Flag(names=("--cycle-time-ms",), variable="HOROVOD_CYCLE_TIME", kind=float),
    Flag(names=("--cache-capacity",), variable="HOROVOD_CACHE_CAPACITY", kind=int),
    *(Flag(names=(f"--{name}",), variable=variable) for name, variable in _SWITCHES),
    *(Flag(names=(f"--no-{name}",), variable=variable, on="0") for name, variable in _SWITCHES),
    Flag(names=("--autotune-log-file",), variable="HOROVOD_AUTOTUNE_LOG", kind=str),
    Flag(
        names=("--autotune-warmup-samples",), variable="HOROVOD_AUTOTUNE_WARMUP_SAMPLES", kind=int
    ),
    Flag(
        names=("--autotune-steps-per-sample",),
        variable="HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        kind=int,
    ),
    Flag(
        names=("--autotune-bayes-opt-max-samples",),
        variable="HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        kind=int,
    ),
    Flag(
        names=("--autotune-gaussian-process-noise",),
        variable="HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        kind=_noise,
    ),
    Flag(names=("--timeline-filename",), variable="HOROVOD_TIMELINE", kind=str),
    Flag(names=("--no-stall-check",), variable="HOROVOD_STALL_CHECK_DISABLE"),
    Flag(names=("--stall-check",), variable="HOROVOD_STALL_CHECK_DISABLE", on="0"),
    Flag(
        names=("--stall-check-warning-time-seconds",),
        variable="HOROVOD_STALL_CHECK_TIME_SECONDS",
        kind=int,
    ),
    Flag(
        names=("--stall-check-shutdown-time-seconds",),
        variable="HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        kind=int,
    ),
    Flag(names=("--num-nccl-streams",), variable="HOROVOD_NUM_NCCL_STREAMS", kind=int),
    Flag(names=("--thread-affinity",), variable="HOROVOD_THREAD_AFFINITY", kind=int),
    Flag(names=("--gloo-timeout-seconds",), variable="HOROVOD_GLOO_TIMEOUT_SECONDS", kind=int),
    Flag(names=("--log-with-timestamp",), variable="HOROVOD_LOG_HIDE_TIME", on="0"),
    Flag(
        names=("--log-without-timestamp", "--log-hide-timestamp"),
        variable="HOROVOD_LOG_HIDE_TIME",
    ),
    Flag(names=("--no-log-hide-timestamp",), variable="HOROVOD_LOG_HIDE_TIME", on="0"),
    Flag(names=("--disable-cache",), nothing="hosts are asked anew for every job"),
    Flag(names=("--gloo",), nothing="Gloo is what there is"),
    Flag(names=("--tcp",), nothing="TCP is used between machines anyway"),
    Flag(names=("--mpi-threads-disable",), nothing="no MPI library is used by processes"),
    Flag(names=("--no-mpi-threads-disable",), nothing="no MPI library is used by processes"),
    Flag(names=("--binding-args",), kind=str, nothing="processes are not bound to cores"),
    Flag(names=("--max-np", "--max-num-proc"), kind=int, nothing=_ELASTIC),
    Flag(names=("--slots-per-host", "--slots"), kind=int, nothing="slots are named with -H"),
    Flag(names=("--elastic-timeout",), kind=float, nothing=_ELASTIC),
    Flag(names=("--reset-limit",), kind=int, nothing=_ELASTIC),
    Flag(names=("--blacklist-cooldown-range",), kind=int, count=2, nothing=_ELASTIC),
    Flag(names=("--min-np", "--min-num-proc"), kind=int, unsupported=_ELASTIC),
    Flag(names=("--host-discovery-script",), kind=str, unsupported=f"{_ELASTIC} and -H"),
    Flag(names=("--jsrun",), unsupported="start agents by ssh or by the cluster: --launcher"),
)
"""The flags that become variables, mean nothing, or are refused. Those that other modules carry out
(``-np``, ``-H``, ``--output-filename``, ...) are in :mod:`bireme.launch.options`."""


def add_horovodrun_options(parser: argparse.ArgumentParser) -> None:
    """Add every flag of ``FLAGS``; the help has one line for all of them."""
    group = parser.add_argument_group(
        "horovodrun", "its other flags are taken too; docs/launch.md says what becomes of each"
    )
    for flag in FLAGS:
        options: dict[str, object] = {"dest": flag.dest, "default": None, "help": argparse.SUPPRESS}
        if flag.kind is None:
            options |= {"action": "store_const", "const": flag.on}
        else:
            options |= {"type": flag.kind, "metavar": "VALUE"}
        if flag.count is not None:
            options["nargs"] = flag.count
        group.add_argument(*flag.names, **options)  # type: ignore[arg-type]


def flags_variables(options: argparse.Namespace) -> dict[str, str]:
    """Return the variables that the flags of a command line set.

    Raises:
        ConfigError: Two flags contradict each other, or one is refused.
    """
    found: dict[str, str] = {}
    said: dict[str, Flag] = {}
    for flag, value in _given(options):
        if flag.unsupported:
            raise UnsupportedError(f"{flag.names[0]}: {flag.unsupported}")
        if not flag.variable:
            continue
        text = flag.convert(value)
        if found.setdefault(flag.variable, text) != text:
            raise ConfigError(
                f"{said[flag.variable].names[0]} and {flag.names[0]} contradict each other"
            )
        said[flag.variable] = flag
    _check_stall_times(found)
    return found


def notices_of(options: argparse.Namespace) -> list[str]:
    """Return a line for each flag of a command line that has no effect."""
    return [
        f"{flag.names[0]} has no effect: {flag.nothing}"
        for flag, _ in _given(options)
        if flag.nothing
    ]


def _given(options: argparse.Namespace) -> Iterator[tuple[Flag, object]]:
    for flag in FLAGS:
        value = getattr(options, flag.dest, None)
        if value is not None:
            yield flag, value


def _check_stall_times(found: Mapping[str, str]) -> None:
    warning_s = int(found.get("HOROVOD_STALL_CHECK_TIME_SECONDS", "60"))
    shutdown_s = int(found.get("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0"))
    if 0 < shutdown_s <= warning_s:
        raise ConfigError(
            f"--stall-check-shutdown-time-seconds must be more than the {warning_s} s until the "
            f"warning, or 0 for never; got {shutdown_s}"
        )
