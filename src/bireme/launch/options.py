"""The flags of ``bireme run``; :mod:`bireme.launch.command` decides what they mean together."""

import argparse
import re

from bireme.launch.horovodrun import add_horovodrun_options
from bireme.launch.job import GRACE_S
from bireme.launch.registry import BACKENDS, find_backend
from bireme.types.choices import DeathPolicy
from bireme.version import __version__

__all__ = ("LOG_LEVELS", "add_backend_options", "add_options", "duration_s", "size_bytes")


LOG_LEVELS = {
    "TRACE": "debug",
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warning",
    "ERROR": "error",
    "FATAL": "error",
}
"""Horovod's levels, and ours."""

_DURATION = re.compile(r"(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d\d)")
_SIZE = re.compile(r"(?P<number>\d+)\s*(?:(?P<unit>[kmgt])i?b?)?", re.IGNORECASE)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every flag but the command."""
    _add_sizes(parser)
    _add_places(parser)
    _add_environment(parser)
    _add_output(parser)
    _add_resources(parser)
    _add_behaviour(parser)
    add_horovodrun_options(parser)
    add_backend_options(parser)


def add_backend_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every backend, each in a group of its own."""
    for name in BACKENDS:
        group = parser.add_argument_group(f"launcher {name}", find_backend(name).summary)
        find_backend(name).add_options(group)  # type: ignore[arg-type]


def size_bytes(text: str) -> int:
    """Read ``"512MiB"``, ``"8G"`` or a number of bytes.

    Raises:
        ValueError: It is none.

    Example:
        >>> size_bytes("8 GiB") == size_bytes("8g") == 8 << 30
        True
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError
    shift = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[(match["unit"] or "").lower()]
    return int(match["number"]) << shift


def duration_s(text: str) -> int:
    """Read ``"1:30:00"``, ``"5:00"`` (minutes) or a number of seconds.

    Raises:
        ValueError: It is none.

    Example:
        >>> duration_s("1:30:00"), duration_s("5:00"), duration_s("90")
        (5400, 300, 90)
    """
    if text.isdecimal():
        return int(text)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError
    return (int(match["hours"] or 0) * 60 + int(match["minutes"])) * 60 + int(match["seconds"])


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-v", "--version", action="version", version=f"bireme {__version__}")
    parser.add_argument(
        *("-cb", "--check-build"),
        action="store_true",
        help="say what this installation can do, and end",
    )
    parser.add_argument(
        *("--config", "--config-file"),
        default=None,
        metavar="FILE",
        help="YAML with these flags (and 'command:'); the command line comes before it",
    )
    parser.add_argument(
        "-n",
        "--num-workers",
        type=int,
        default=None,
        metavar="N",
        help="workers to start, beside a scheduler and servers",
    )
    parser.add_argument(
        "-s",
        "--num-servers",
        type=int,
        default=None,
        metavar="S",
        help="servers (default: 1; 0 also means no scheduler)",
    )
    parser.add_argument(
        "-np",
        "--num-proc",
        type=int,
        default=None,
        metavar="N",
        help="workers to start that need no servers, as horovodrun and torchrun do",
    )


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--launcher",
        choices=list(BACKENDS),
        default=None,
        help="where to (default: ssh where -H or --hostfile name other hosts, else local)",
    )
    parser.add_argument(
        "-H",
        "--hosts",
        default="",
        metavar="HOST:SLOTS,...",
        help="where to run, in the order of ranks, and how many workers fit there",
    )
    parser.add_argument(
        "-hostfile",
        "--hostfile",
        default="",
        metavar="FILE",
        help="the same, a host in each line: 'leda slots=4', or only 'leda'",
    )
    parser.add_argument(
        "--scheduler-host",
        default="",
        metavar="HOST",
        help="where the scheduler runs and is reached (default: the first host)",
    )
    parser.add_argument(
        "--workdir", default="", metavar="DIR", help="where processes start (default: as here)"
    )
    parser.add_argument(
        "--sync-dir",
        default="",
        metavar="DIR",
        help="copy this folder to DIR on every other host first, and start processes there",
    )
    parser.add_argument(
        *("--network-interface", "--network-interfaces"),
        dest="network_interfaces",
        action="append",
        default=[],
        metavar="NAME,...",
        help="the interfaces that processes use for each other, the first one before others",
    )
    parser.add_argument("--mpi", action="store_true", help="the same as --launcher mpi")


def _add_resources(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("resources", "what to ask a cluster for")
    group.add_argument("--job-name", default="", metavar="NAME", help="what the job goes by")
    group.add_argument("--cores", type=int, default=0, metavar="N", help="cores for each process")
    group.add_argument("--gpus", type=int, default=0, metavar="N", help="GPUs for each worker")
    group.add_argument(
        "--memory", type=size_bytes, default=0, metavar="SIZE", help="for each process: 8GiB"
    )
    group.add_argument(
        "--time", type=duration_s, default=0, metavar="H:MM:SS", help="how long it may run"
    )
    group.add_argument("--queue", default="", metavar="NAME", help="the queue or partition")


def _add_environment(parser: argparse.ArgumentParser) -> None:
    for role, whom in (("", "every process"), ("-server", "servers"), ("-worker", "workers")):
        parser.add_argument(
            f"--env{role}",
            action="append",
            default=[],
            metavar="NAME[=VALUE]",
            help=f"set a variable in {whom}; may be repeated",
        )
    parser.add_argument(
        "--as-horovod",
        action="store_true",
        help="in every process, import horovod means bireme.horovod; scripts run unmodified",
    )
    parser.add_argument(
        "--secret-file",
        default=None,
        metavar="FILE",
        help="keep the job's secret in FILE, made for its owner only, not in the environment",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output-dir", default=None, metavar="DIR", help="also keep each process's output in DIR"
    )
    parser.add_argument(
        "--output-filename",
        default=None,
        metavar="DIR",
        help="the same with a folder for each rank: DIR/rank.0/stdout, DIR/rank.0/stderr",
    )
    parser.add_argument(
        *("-prefix-timestamp", "--prefix-output-with-timestamp"),
        dest="timestamps",
        action="store_true",
        help="put the time before each line",
    )
    parser.add_argument(
        "--log-level",
        type=str.upper,
        choices=list(LOG_LEVELS),
        default=None,
        help="of the library, in every process (default: WARNING)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="say what is started where, before it is"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be started, and start nothing"
    )


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-store",
        default=None,
        metavar="TYPE",
        help="store type for scripts that name none; default: dist_sync, without servers allreduce",
    )
    parser.add_argument(
        "--staleness",
        type=int,
        default=None,
        metavar="S",
        help="rounds that a worker of a dist_bounded store may be ahead (default: 2)",
    )
    parser.add_argument(
        "--allow-optimizer",
        action="append",
        default=[],
        metavar="MODULE",
        help="let servers import MODULE for an optimizer that is not one of torch.optim; "
        "MODULE:CLASS allows one class; may be repeated",
    )
    parser.add_argument(
        "--on-worker-death",
        choices=[str(policy) for policy in DeathPolicy],
        default=None,
        help="abort the job (default), continue without the worker, or wait for a new one, "
        "which is then started in its place",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=3,
        metavar="N",
        help="with --on-worker-death wait: starts of one worker after its first (default: 3)",
    )
    parser.add_argument(
        "--grace-period",
        type=float,
        default=GRACE_S,
        metavar="S",
        help="seconds that processes have after SIGTERM until they are killed (default: 5)",
    )
    parser.add_argument(
        "--start-timeout",
        type=float,
        default=None,
        metavar="S",
        help="seconds until every host must be ready, and then every process (default: 60 each)",
    )
