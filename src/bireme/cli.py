"""The ``bireme`` command: parse arguments, hand over to the room that does the work.

Heavy imports stay inside the subcommand that needs them: ``bireme --help`` starts in a blink.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Mapping, Sequence

from bireme.errors import BiremeError
from bireme.launch.command import add_run_command, run
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
        return int(options.run(options))
    except BiremeError as error:
        print(f"bireme: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bireme", description="Train one PyTorch model on many devices and many machines."
    )
    parser.add_argument("--version", action="version", version=f"bireme {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    doctor = commands.add_parser(
        "doctor",
        help="print what is installed and which devices there are",
        epilog="example: bireme doctor",
    )
    doctor.set_defaults(run=_doctor)
    add_run_command(commands).set_defaults(run=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    return run(options, os.environ)


def _doctor(_options: argparse.Namespace) -> int:
    for name, value in _facts(os.environ).items():
        print(f"{name:<12} {value}")
    return 0


def _facts(env: Mapping[str, str]) -> dict[str, str]:
    """Return what a bug report needs to say about this machine."""
    facts = {
        "bireme": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        "cpu cores": str(len(os.sched_getaffinity(0)))
        if hasattr(os, "sched_getaffinity")
        else str(os.cpu_count()),
    }
    for package in ("torch", "numpy", "numba", "safetensors", "rich"):
        facts[package] = _package_version(package)
    facts["gpus"] = _gpus()
    facts["threads"] = f"OMP_NUM_THREADS={env.get('OMP_NUM_THREADS', 'unset')}"
    return facts


def _package_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed; try: pip install bireme"


def _gpus() -> str:
    if importlib.util.find_spec("torch") is None:
        return "unknown without torch"
    cuda = importlib.import_module("torch.cuda")
    names = [f"gpu({i}) {cuda.get_device_name(i)}" for i in range(cuda.device_count())]
    return ", ".join(names) or "none; cpu(0), cpu(1), ... work everywhere"
