"""``bireme job``: how a job is that was started here or handed to a cluster; end it; its output."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from bireme.launch.options import add_backend_options
from bireme.launch.registry import BACKENDS, find_backend

__all__ = ("act_on_job", "add_job_command")

_EXAMPLE = """examples:
  bireme job status job-1f2e3d4c
  bireme job cancel 4711 --launcher slurm
  bireme job logs job-1f2e3d4c

Jobs of the launchers local and ssh are named as in bireme doctor, others as their cluster says.
"""


def add_job_command(commands: Any) -> argparse.ArgumentParser:
    """Add ``job`` to the subparsers of the ``bireme`` command, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "job",
        help="how a job is; end it; its output",
        description="Ask about a job, end it, or show its output.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("act", choices=["status", "cancel", "logs"])
    parser.add_argument("job", metavar="JOB")
    parser.add_argument(
        "--launcher", choices=list(BACKENDS), default="local", help="who runs it (default: local)"
    )
    add_backend_options(parser)
    return parser


def act_on_job(
    options: argparse.Namespace, env: Mapping[str, str], say: Callable[[str], object]
) -> int:
    """Carry out ``bireme job``; return the exit code.

    Raises:
        ConfigError: There is no such job, or it keeps no output.
    """
    backend = find_backend(options.launcher).from_options(options, env)
    if options.act == "status":
        say(str(backend.status(options.job)))
    elif options.act == "cancel":
        backend.cancel(options.job)
    else:
        for line in backend.logs(options.job):
            say(line)
    return 0
