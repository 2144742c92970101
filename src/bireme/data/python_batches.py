"""Reads the serialised dictionaries of CIFAR-10's Python version without running them.

Those files are programs for a stack machine that could call any function. This reader knows
only the few instructions that they need, and four names, none of which it ever imports: a
name is a mark on the stack, and "calling" it yields bytes or an array of unsigned bytes.
Anything else is refused. Called by :mod:`bireme.data.cifar10`.
"""

import math
import pickletools
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bireme.data.arrays import Array
from bireme.errors import ConfigError, DataError

__all__ = ("read_python_batch",)

_LARGEST_BYTES = 256 << 20
"""A batch of 10,000 images takes 31 MB; a file much larger is something else."""
_COPIES = 4
"""Text becomes bytes once and then an array; a file that makes many copies means harm."""


def read_python_batch(path: str | Path) -> dict[str, Any]:
    """Return the dictionary in a batch file of CIFAR-10's Python version.

    Args:
        path: A file such as ``data_batch_1``, written by Python 2 or 3 with protocol 2.

    Returns:
        Strings, integers, lists and arrays of uint8, by name.

    Raises:
        ConfigError: There is no such file.
        DataError: It is too large, truncated, or holds anything but such data.

    Guarantees:
        Nothing in the file is imported or called, and memory is bounded by a small multiple of
        the file's size.

    Source:
        The opcode table of Python's ``pickletools``.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    size_bytes = path.stat().st_size
    if size_bytes > _LARGEST_BYTES:
        raise DataError(f"{path}: {size_bytes} bytes is too large for a CIFAR-10 batch")
    try:
        value = _Machine().run(path.read_bytes())
    except _Refused as error:
        raise DataError(f"{path}: not a CIFAR-10 batch: {error}") from None
    except (ValueError, IndexError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: truncated or damaged ({error}); get it again") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: expected a dictionary, found {type(value).__name__}")
    strangers = {type(name).__name__ for name in value if not isinstance(name, str)}
    if strangers:
        raise DataError(f"{path}: expected strings as keys, found {', '.join(sorted(strangers))}")
    return value


class _Refused(Exception):
    pass


class _Name(Enum):
    RECONSTRUCT = "an array"
    NDARRAY = "numpy.ndarray"
    DTYPE = "a dtype"
    ENCODE = "bytes"


_NAMES = {
    "numpy.core.multiarray _reconstruct": _Name.RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _Name.RECONSTRUCT,
    "numpy ndarray": _Name.NDARRAY,
    "numpy dtype": _Name.DTYPE,
    "_codecs encode": _Name.ENCODE,
}

_MARK = object()
_BYTE_DTYPE = object()
"""Stands on the stack for the one element type that batches have: unsigned bytes."""


class _Unfilled:
    """An array that was announced but has no content yet."""

    array: Array | None = None


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.budget_bytes = 0

    def run(self, program: bytes) -> Any:
        self.budget_bytes = _COPIES * len(program)
        for opcode, argument, _ in pickletools.genops(program):
            step = _STEPS.get(opcode.name)
            if step is None:
                raise _Refused(f"instruction {opcode.name} has no place in one")
            step(self, argument)
        (value,) = self.stack
        return _filled(value)

    def pop_to_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def name(self, argument: str) -> None:
        if argument not in _NAMES:
            raise _Refused(f"it asks for {argument.replace(' ', '.')}")
        self.push(_NAMES[argument])

    def spend(self, content: str | bytes) -> None:
        self.budget_bytes -= len(content)
        if self.budget_bytes < 0:
            raise _Refused("it unfolds to much more than its own size")

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("stack too short")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        self.push(tuple(items))

    def append_all(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise _Refused("it appends to something that is no list")
        target.extend(items)

    def set_all(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise _Refused("it sets entries of something that is no dictionary")
        target.update(zip(items[::2], items[1::2], strict=True))

    def call(self) -> None:
        arguments, name = self.stack.pop(), self.stack.pop()
        match name, arguments:
            case _Name.RECONSTRUCT, (_Name.NDARRAY, (0,), "b" | b"b"):
                self.push(_Unfilled())
            case _Name.DTYPE, ("u1", *_):
                self.push(_BYTE_DTYPE)
            case _Name.ENCODE, (str() as text, "latin1" | "latin-1"):
                self.spend(text)
                self.push(text.encode("latin-1"))
            case _:
                raise _Refused(f"it asks for {getattr(name, 'value', name)} of {arguments!r:.80}")

    def fill(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if target is _BYTE_DTYPE:
            return
        match target, state:
            case _Unfilled(), (1, tuple() as shape, dtype, False | 0, str() | bytes() as content):
                if dtype is not _BYTE_DTYPE:
                    raise _Refused("it holds an array of something else than unsigned bytes")
                self.spend(content)
                target.array = _bytes_array(shape, content)
            case _:
                raise _Refused(f"it sets the state of {type(target).__name__}")


def _bytes_array(shape: tuple[Any, ...], content: str | bytes) -> Array:
    data = content.encode("latin-1") if isinstance(content, str) else content
    if not all(type(size) is int and size >= 0 for size in shape):
        raise _Refused(f"it holds an array of shape {shape}")
    if math.prod(shape) != len(data):
        raise _Refused(f"an array of shape {shape} has {len(data)} bytes")
    return np.frombuffer(bytearray(data), np.uint8).reshape(shape)


def _filled(value: Any) -> Any:
    if isinstance(value, _Unfilled):
        if value.array is None:
            raise _Refused("it holds an array without content")
        return value.array
    if isinstance(value, dict):
        return {name: _filled(entry) for name, entry in value.items()}
    return value


_Step: TypeAlias = Callable[[_Machine, Any], Any]

_STEPS: dict[str, _Step] = {
    "PROTO": lambda machine, version: None,
    "STOP": lambda machine, _: None,
    "MARK": lambda machine, _: machine.push(_MARK),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "APPEND": lambda machine, _: machine.append_all([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append_all(machine.pop_to_mark()),
    "SETITEM": lambda machine, _: machine.set_all([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _: machine.set_all(machine.pop_to_mark()),
    "BINPUT": lambda machine, slot: machine.memo.update({slot: machine.stack[-1]}),
    "LONG_BINPUT": lambda machine, slot: machine.memo.update({slot: machine.stack[-1]}),
    "BINGET": lambda machine, slot: machine.push(machine.memo[slot]),
    "LONG_BINGET": lambda machine, slot: machine.push(machine.memo[slot]),
    "GLOBAL": _Machine.name,
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.fill(),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1"), _Machine.push),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING", "BINUNICODE"), _Machine.push),
}
