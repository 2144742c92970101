"""Element types by name: what the pure layers and the wire know of a tensor's dtype.

The names are torch's (``torch.float32`` is ``"float32"``), so that a shell can turn one into the
other with ``getattr(torch, name)``.
"""

from enum import StrEnum

__all__ = ("DType",)


class DType(StrEnum):
    """The element types that a store holds.

    Example:
        >>> DType("bfloat16").itemsize, DType.FLOAT32.is_floating
        (2, True)
    """

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]

    @property
    def is_floating(self) -> bool:
        """Whether the type has fractions; the others are integers that wrap around."""
        return "float" in self.value


_ITEMSIZE = {
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.FLOAT32: 4,
    DType.FLOAT64: 8,
    DType.INT8: 1,
    DType.INT16: 2,
    DType.INT32: 4,
    DType.INT64: 8,
    DType.UINT8: 1,
}
