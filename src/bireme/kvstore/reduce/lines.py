"""The innermost loop of the host's sums, as vector instructions: what numba would not emit itself.

Called by the compiled loop of :mod:`bireme.kvstore.reduce.kernel` only.

* A block is a few cache lines. All values of a block are added in registers and the sum is stored
  to every target at once, so each input is read once, each target written once, and nothing
  passes through a buffer.
* Targets that do not fit the cache are written past it ("streamed"), which saves reading them
  first. Lines are written whole, as the processor's write buffers want it.
* Half types are widened to float32 in registers and rounded once, to nearest even as torch does.
"""

import inspect
import platform
import sys
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.core import cgutils

__all__ = ("ITEM_BYTES", "LINE_BYTES", "add_blocks", "can_add", "code_for")

LINE_BYTES = 64
"""A cache line; streamed targets begin on one."""

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_FLOAT = ir.FloatType()
_ELEMENTS = {
    "float16": ir.HalfType(),
    "bfloat16": _I16,
    "float32": _FLOAT,
    "float64": ir.DoubleType(),
    "int8": ir.IntType(8),
    "int16": _I16,
    "int32": _I32,
    "int64": _I64,
    "uint8": ir.IntType(8),
}

ITEM_BYTES = {
    name: {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "uint8": 1}.get(name)
    or int(name.removeprefix("int")) // 8
    for name in _ELEMENTS
}
"""Size of an element by the name of its type."""


@cache
def can_add(kind: str) -> bool:
    """Return whether this processor can add elements of type ``kind``.

    Example:
        >>> can_add("float32"), can_add("complex64")
        (True, False)
    """
    if kind == "float16" and platform.machine().lower() in ("x86_64", "amd64"):
        # Without these instructions LLVM would call a library function that nobody provides.
        return bool(binding.get_host_cpu_features().get("f16c", False))
    return kind in _ELEMENTS


@cache
def code_for(kind: str) -> str:
    """Return what :func:`add_blocks` calls the element type ``kind``.

    It names the state of this module too, so that compiled code that numba kept on disk is not
    used after a change here.

    Example:
        >>> code_for("float32").partition(":")[0]
        'float32'
    """
    text = inspect.getsource(sys.modules[__name__])
    return f"{kind}:{zlib.crc32(text.encode()):08x}"


def _intrinsic(function: Callable[..., Any]) -> Any:
    # Callers leave out the context, which no annotation can say.
    return extending.intrinsic(prefer_literal=True)(function)


@_intrinsic
def add_blocks(
    context: Any,
    code: Any,
    size_bytes: Any,
    table: Any,
    job: Any,
    start: Any,
    count: Any,
    stream: Any,
) -> Any:
    """Add ``count`` blocks of every value and store the sums to every target.

    Args:
        context: Numba's.
        code: Literal: what :func:`code_for` returned.
        size_bytes: Literal: size of a block, a multiple of the element's.
        table: Address of an int64 array with the addresses of values, then of targets.
        job: Address of two int64: the numbers of values, >= 1, and of targets.
        start: Offset in bytes where the first block begins, the same in all tensors.
        count: How many blocks.
        stream: Whether to write past the cache; targets must then be aligned to lines there.
    """
    block = _Block(code.literal_value.partition(":")[0], size_bytes.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, _, table, job, start, count, stream = args
        table, job = (builder.inttoptr(each, _I64.as_pointer()) for each in (table, job))
        num_values, num_targets = (builder.load(builder.gep(job, [_I64(i)])) for i in (0, 1))
        numbers = (table, num_values, num_targets, start, count)
        with builder.if_else(builder.icmp_unsigned("!=", stream, stream.type(0))) as (yes, no):
            with yes:
                block.loop(builder, *numbers, nontemporal=True)
            with no:
                block.loop(builder, *numbers, nontemporal=False)
        return context.get_dummy_value()

    return types.void(code, size_bytes, *(types.int64,) * 4, types.boolean), generate


class _Block:
    """Emits instructions for blocks of one size and element type."""

    def __init__(self, kind: str, size_bytes: int) -> None:
        self._kind = kind
        self._size_bytes = size_bytes
        self._length = size_bytes // ITEM_BYTES[kind]
        self._raw = ir.VectorType(_ELEMENTS[kind], self._length)
        self._is_half = kind in ("float16", "bfloat16")
        self._wide = ir.VectorType(_FLOAT if self._is_half else _ELEMENTS[kind], self._length)

    def loop(
        self,
        builder: Any,
        table: Any,
        num_values: Any,
        num_targets: Any,
        start: Any,
        count: Any,
        *,
        nontemporal: bool,
    ) -> None:
        total = cgutils.alloca_once(builder, self._wide)  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, count) as blocks:
            offset = builder.add(start, builder.mul(blocks.index, _I64(self._size_bytes)))
            builder.store(self._load(builder, table, _I64(0), offset), total)
            with cgutils.for_range(builder, num_values, start=_I64(1)) as values:
                value = self._load(builder, table, values.index, offset)
                builder.store(self._plus(builder, builder.load(total), value), total)
            result = self._narrowed(builder, builder.load(total))
            with cgutils.for_range(builder, num_targets) as targets:
                place = builder.add(targets.index, num_values)
                self._store(builder, result, self._at(builder, table, place, offset), nontemporal)

    def _at(self, builder: Any, table: Any, index: Any, offset: Any) -> Any:
        base = builder.load(builder.gep(table, [index]))
        return builder.inttoptr(builder.add(base, offset), self._raw.as_pointer())

    def _load(self, builder: Any, table: Any, index: Any, offset: Any) -> Any:
        raw = builder.load(self._at(builder, table, index, offset), align=1)
        if self._kind == "float16":
            return builder.fpext(raw, self._wide)
        if self._kind == "bfloat16":
            bits = builder.shl(builder.zext(raw, self._ints()), self._all(16))
            return builder.bitcast(bits, self._wide)
        return raw

    def _store(self, builder: Any, result: Any, address: Any, nontemporal: bool) -> None:
        store = builder.store(result, address, align=LINE_BYTES if nontemporal else 1)
        if nontemporal:
            store.set_metadata("nontemporal", builder.module.add_metadata([_I32(1)]))

    def _plus(self, builder: Any, left: Any, right: Any) -> Any:
        if isinstance(self._wide.element, ir.IntType):
            return builder.add(left, right)
        return builder.fadd(left, right)

    def _narrowed(self, builder: Any, wide: Any) -> Any:
        if self._kind == "float16":
            return builder.fptrunc(wide, self._raw)
        if self._kind == "bfloat16":
            bits = builder.bitcast(wide, self._ints())
            odd = builder.and_(builder.lshr(bits, self._all(16)), self._all(1))
            rounded = builder.add(bits, builder.add(odd, self._all(0x7FFF)))
            # Rounding could carry the bits of a NaN over into those of a number.
            is_nan = builder.fcmp_unordered("uno", wide, wide)
            rounded = builder.select(is_nan, self._all(0x7FC00000), rounded)
            return builder.trunc(builder.lshr(rounded, self._all(16)), self._raw)
        return wide

    def _ints(self) -> Any:
        return ir.VectorType(_I32, self._length)

    def _all(self, number: int) -> Any:
        return ir.Constant(self._ints(), [number] * self._length)
