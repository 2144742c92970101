"""The flags of ``bireme run``; :mod:`bireme.launch.command` decides what they mean together."""

import argparse

from bireme.launch.registry import BACKENDS, find_backend
from bireme.types.choices import DeathPolicy

__all__ = ("add_options",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every flag but the command."""
    _add_sizes(parser)
    _add_places(parser)
    _add_environment(parser)
    _add_output(parser)
    _add_behaviour(parser)
    for name in BACKENDS:
        group = parser.add_argument_group(f"launcher {name}", find_backend(name).summary)
        find_backend(name).add_options(group)  # type: ignore[arg-type]


def _add_sizes(parser: argparse.ArgumentParser) -> None:
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
        "--dry-run", action="store_true", help="show what would be started, and start nothing"
    )


def _add_behaviour(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-store", default=None, metavar="TYPE", help="store type for scripts that name none"
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
        "--start-timeout",
        type=float,
        default=None,
        metavar="S",
        help="seconds until every host must be ready, and then every process (default: 60 each)",
    )
