"""The ``bireme`` command: parse arguments, hand over to the room that does the work.

Heavy imports stay inside the subcommand that needs them: ``bireme --help`` starts in a blink.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from bireme.errors import BiremeError
from bireme.launch.agent import serve
from bireme.launch.command import add_run_command, run, with_job_file
from bireme.launch.doctor import add_doctor_command, examine
from bireme.launch.jobcommand import act_on_job, add_job_command
from bireme.launch.launchpy import add_launch_command, as_run_arguments, notices_of_launch
from bireme.launch.muster import call
from bireme.launch.parsing import CommandParser
from bireme.launch.timeline import add_timeline_command, join
from bireme.version import __version__

__all__ = ("main",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        argv: Arguments after the program's name; ``sys.argv[1:]`` when ``None``.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        if options.command == "run":
            arguments = list(sys.argv[1:] if argv is None else argv)
            # Everything up to the subcommand's name belongs to the program itself.
            rest = arguments[arguments.index("run") + 1 :]
            options = with_job_file(options.parser, rest, options)
        return int(options.run(options))
    except BiremeError as error:
        print(f"bireme: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bireme", description="Train one PyTorch model on many devices and many machines."
    )
    parser.add_argument("--version", action="version", version=f"bireme {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    add_doctor_command(commands).set_defaults(run=_doctor)
    add_job_command(commands).set_defaults(run=_job)
    run_parser = add_run_command(commands)
    run_parser.set_defaults(run=_run, parser=run_parser)
    add_launch_command(commands).set_defaults(run=_launch)
    # Started by launchers on the hosts of a job; nothing for people.
    agent = commands.add_parser("agent")
    agent.add_argument("--call", action="store_true")
    agent.set_defaults(run=_agent)
    add_timeline_command(commands).set_defaults(run=_timeline)
    return parser


def _run(options: argparse.Namespace) -> int:
    return run(options, os.environ)


def _agent(options: argparse.Namespace) -> int:
    return call(os.environ) if options.call else serve(os.environ)


def _launch(options: argparse.Namespace) -> int:
    for line in notices_of_launch(options):
        print(f"bireme: {line}", file=sys.stderr)
    return main(["run", *as_run_arguments(options, os.environ)])


def _job(options: argparse.Namespace) -> int:
    return act_on_job(options, os.environ, print)


def _doctor(options: argparse.Namespace) -> int:
    return examine(options, os.environ, print)


def _timeline(options: argparse.Namespace) -> int:
    return join(options, print)
