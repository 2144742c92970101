"""``bireme timeline``: join the timelines of a job's processes."""

import argparse
from collections.abc import Callable
from typing import Any

from bireme.observe.timeline import merge

__all__ = ("add_timeline_command", "join")

_EXAMPLE = """example:
  BIREME_TIMELINE=trace.json bireme run -n 2 -s 2 python train.py
  bireme timeline trace.*.json -o all.json

Open the result in a browser, at ui.perfetto.dev or chrome://tracing.
"""


def add_timeline_command(commands: Any) -> argparse.ArgumentParser:
    """Add ``timeline`` to the subparsers of the ``bireme`` command, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "timeline",
        help="join the timelines of a job's processes",
        description="Join the files that BIREME_TIMELINE made into one.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    return parser


def join(options: argparse.Namespace, say: Callable[[str], object]) -> int:
    """Carry out ``bireme timeline``; return the exit status.

    Raises:
        ConfigError: A file cannot be read or written, or is no timeline.
    """
    num_events = merge(options.files, options.output)
    say(f"{options.output}: {num_events} events of {len(options.files)} processes")
    return 0
