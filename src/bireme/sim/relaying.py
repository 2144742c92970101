"""A relay's arithmetic over packed floats: the simulator's ``RelaySums``.

A payload and a handle are ``bytes`` of packed float64.
"""

from bireme.sim.values import pack, unpack
from bireme.types.dtypes import DType

__all__ = ("FloatSums",)


class FloatSums:
    """``RelaySums`` over packed floats.

    Example:
        >>> sums = FloatSums()
        >>> total = sums.add(DType.FLOAT64, pack([1.0, 2.0]), pack([3.0, 4.0]), 0.5)
        >>> unpack(total)
        [2.5, 4.0]
    """

    def first(self, dtype: DType, payload: object, weight: float) -> bytes:
        """Return ``payload`` times ``weight``."""
        return pack(_weighed(payload, weight))

    def add(self, dtype: DType, total: object, payload: object, weight: float) -> bytes:
        """Return the sum."""
        added = zip(unpack(total), _weighed(payload, weight), strict=True)
        return pack([a + b for a, b in added])

    def merge(self, dtype: DType, one: object, other: object) -> bytes:
        """Return the sum."""
        return self.add(dtype, one, other, 1.0)

    def copy(self, payload: object) -> bytes:
        """Return the same bytes."""
        assert isinstance(payload, bytes)
        return payload

    def sum_itemsize(self, dtype: DType) -> int:
        """Return the size of an element, which is that of every type's sum here."""
        return dtype.itemsize


def _weighed(payload: object, weight: float) -> list[float]:
    numbers = unpack(payload)
    return numbers if weight == 1.0 else [weight * each for each in numbers]
