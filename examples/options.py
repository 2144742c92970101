"""What the examples' command lines share: contexts, number types, one-line errors."""

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

import bireme
from bireme.errors import BiremeError, ConfigError
from bireme.types import Context, parse_contexts

__all__ = (
    "add_contexts",
    "contexts",
    "increasing_ints",
    "natural_float",
    "natural_int",
    "parser",
    "positive_float",
    "positive_int",
    "run",
    "work_loads",
)


Number = TypeVar("Number", int, float)


def run(main: Callable[[], None]) -> None:
    """Call ``main``; a mistake in the options or the data ends in one line and status 2.

    A process that was launched as a server or the scheduler of a cluster serves instead.
    """
    bireme.run_role()
    try:
        main()
    except BiremeError as error:
        print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{Path(sys.argv[0]).name}: interrupted", file=sys.stderr)
        sys.exit(130)


class _Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    pass


def parser(description: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        description=description,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )


def add_contexts(target: argparse.ArgumentParser) -> None:
    target.add_argument("--gpus", metavar="0,2", help="numbers of the GPUs; CPU without it")
    target.add_argument(
        "--num-cpus", type=positive_int, default=1, metavar="N", help="CPU contexts without --gpus"
    )


def contexts(args: argparse.Namespace) -> list[Context]:
    """Return the contexts that ``args`` names, all of which exist.

    Raises:
        ConfigError: One does not.
    """
    found = parse_contexts(args.gpus, num_cpus=args.num_cpus)
    present = torch.cuda.device_count()
    for context in found:
        if context.kind == "gpu" and context.index >= present:
            raise ConfigError(f"--gpus names {context}, but this machine has {present} GPUs")
    return found


def work_loads(text: str | None) -> Any:
    """Read the value of --work-load-list: numbers, ``"auto"``, or nothing.

    Raises:
        ConfigError: It is something else.
    """
    if text is None or text == "auto":
        return text
    try:
        return [float(entry) for entry in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--work-load-list takes numbers such as 3,1, or auto; got {text!r}"
        ) from None


def increasing_ints(text: str) -> list[int]:
    found = [positive_int(entry) for entry in text.split(",")]
    if found != sorted(set(found)):
        raise argparse.ArgumentTypeError(f"{text!r} is not in increasing order")
    return found


def positive_int(text: str) -> int:
    return _number(text, int, 1, "an integer >= 1")


def natural_int(text: str) -> int:
    return _number(text, int, 0, "an integer >= 0")


def natural_float(text: str) -> float:
    return _number(text, float, 0, "a number >= 0")


def positive_float(text: str) -> float:
    return _number(text, float, sys.float_info.min, "a number > 0")


def _number(text: str, kind: type[Number], low: float, wanted: str) -> Number:
    try:
        value = kind(text)
    except ValueError:
        value = kind(low) - 1
    if not low <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return value
