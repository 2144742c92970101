"""How a value is cut into slots: the units of transfer and of placement.

Pure; the scheduler calls it once for each key, when the key is first declared.
"""

from itertools import pairwise
from typing import NamedTuple

from bireme.errors import ConfigError

__all__ = ("Span", "cut")

_ALIGNMENT = 64
"""Elements. Cuts inside a row fall on multiples of it: vector loads stay aligned, and packed
encodings (16 or 32 elements to a word) waste nothing."""


class Span(NamedTuple):
    """A run of elements of a flattened value."""

    offset: int
    length: int


def cut(
    num_elements: int,
    itemsize: int,
    *,
    row_length: int = 1,
    slice_bytes: int = 1 << 20,
    whole_rows: bool = False,
    splittable: bool = True,
    num_servers: int = 1,
) -> tuple[Span, ...]:
    """Cut a value into spans of nearly equal size, at the ends of rows where rows fit.

    Args:
        num_elements: Elements of the flattened value, >= 0.
        itemsize: Bytes of one element, >= 1.
        row_length: Elements of one row, >= 1; it divides ``num_elements``.
        slice_bytes: Most bytes of one span, >= 1; never less than an element is taken.
        whole_rows: Never cut a row, even one that is larger than ``slice_bytes``: for values
            of which single rows are pulled.
        splittable: ``False`` keeps the value in one span, whatever its size.
        num_servers: Who the spans are dealt to, >= 1. More spans than that come in a multiple of
            it, or one span too many would make its server's link the last to finish.

    Raises:
        ConfigError: A size is out of range, or rows do not fill the value.

    Guarantees:
        The spans cover the value exactly, in order, and none but the only span of an empty value
        is empty. The result depends on nothing but the arguments.

    Example:
        >>> cut(10, 4, row_length=2, slice_bytes=16)
        (Span(offset=0, length=4), Span(offset=4, length=4), Span(offset=8, length=2))
        >>> cut(10, 4, slice_bytes=16, splittable=False)
        (Span(offset=0, length=10),)
        >>> [span.length for span in cut(1000, 4, slice_bytes=1024, num_servers=3)]
        [167, 167, 166, 167, 167, 166]
    """
    _check(num_elements, itemsize, row_length, slice_bytes, num_servers)
    if not splittable or num_elements * itemsize <= slice_bytes:
        return (Span(0, num_elements),)
    rows_fit = row_length * itemsize <= slice_bytes
    if rows_fit or whole_rows:
        unit = row_length
        most = max(1, slice_bytes // (row_length * itemsize))
    else:
        most = max(1, slice_bytes // itemsize)
        unit = _ALIGNMENT if most >= _ALIGNMENT else 1
        most //= unit
    return tuple(_even(num_elements, unit, most, num_servers))


def _check(
    num_elements: int, itemsize: int, row_length: int, slice_bytes: int, num_servers: int
) -> None:
    for name, value, least in (
        ("num_elements", num_elements, 0),
        ("itemsize", itemsize, 1),
        ("row_length", row_length, 1),
        ("slice_bytes", slice_bytes, 1),
        ("num_servers", num_servers, 1),
    ):
        if value < least:
            raise ConfigError(f"{name} must be >= {least}, got {value}")
    if num_elements % row_length:
        raise ConfigError(f"{num_elements} elements are no number of rows of {row_length}")


def _even(num_elements: int, unit: int, most: int, num_servers: int) -> list[Span]:
    """Spread the value's units over few spans of at most ``most`` units."""
    num_units = -(-num_elements // unit)
    num_spans = -(-num_units // most)
    if num_spans > num_servers:
        num_spans = min(num_units, -(-num_spans // num_servers) * num_servers)
    ends = [min(num_elements, -(-num_units * i // num_spans) * unit) for i in range(num_spans + 1)]
    return [Span(start, end - start) for start, end in pairwise(ends)]
