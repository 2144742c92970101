"""What a stored value may look like, and whether a tensor fits a key.

Pure checks: every store calls them before it changes anything.
"""

from dataclasses import dataclass

import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.types.keys import Key

__all__ = ("DTYPES", "HALF_DTYPES", "Layout", "is_row_sparse", "lies_plain")

HALF_DTYPES = frozenset({torch.float16, torch.bfloat16})
"""Types that are summed in float32."""

DTYPES = HALF_DTYPES | {
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
}
"""Element types that a store holds. Integers wrap around as torch's do."""


def is_row_sparse(tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is a COO tensor with exactly one sparse dimension.

    Example:
        >>> is_row_sparse(torch.eye(2).to_sparse(1)), is_row_sparse(torch.eye(2).to_sparse())
        (True, False)
    """
    return tensor.layout is torch.sparse_coo and tensor.sparse_dim() == 1


def lies_plain(tensor: torch.Tensor) -> bool:
    """Return whether the memory of a dense tensor holds its elements as they are, in order.

    That of views with torch's negative or conjugate bit does not. ``conj()`` and ``imag`` make such
    views, and autograd gives them as gradients.

    Example:
        >>> imaginary = torch.tensor([1 + 2j]).conj().imag
        >>> lies_plain(torch.ones(2, 2)), lies_plain(torch.ones(2, 2).t()), lies_plain(imaginary)
        (True, False, False)
    """
    return tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape, element type and sparsity that a key keeps for life.

    Example:
        >>> Layout.of("weight", torch.zeros(2, 3))
        Layout(shape=torch.Size([2, 3]), dtype=torch.float32, row_sparse=False)
    """

    shape: torch.Size
    dtype: torch.dtype
    row_sparse: bool

    @classmethod
    def of(cls, key: Key, value: torch.Tensor) -> "Layout":
        """Return the layout of ``value``.

        Raises:
            UnsupportedError: A store cannot hold such a tensor.
        """
        if value.dtype not in DTYPES:
            raise UnsupportedError(
                f"key {key!r}: a store cannot hold {value.dtype}; convert it to one of "
                f"{', '.join(sorted(str(dtype).removeprefix('torch.') for dtype in DTYPES))}"
            )
        _refuse_odd_layout(key, value)
        return cls(value.shape, value.dtype, value.layout is torch.sparse_coo)

    @property
    def size_bytes(self) -> int:
        """Size of a dense value, in bytes."""
        return self.shape.numel() * self.dtype.itemsize

    def check_value(self, key: Key, value: torch.Tensor) -> None:
        """Refuse a tensor that cannot be pushed to this key.

        Raises:
            ConfigError: Shape, dtype or sparsity does not fit.
        """
        if value.layout is not torch.strided or self.row_sparse:
            _refuse_odd_layout(key, value)
            if self.row_sparse and value.layout is torch.strided:
                raise ConfigError(
                    f"key {key!r} is row-sparse, but a dense tensor was pushed; push "
                    "tensor.to_sparse(1)"
                )
        self._check_form(key, value, "value")

    def check_out(self, key: Key, out: torch.Tensor) -> None:
        """Refuse a tensor that this key cannot be pulled into.

        Raises:
            ConfigError: Shape or dtype does not fit, or ``out`` is sparse or expanded.
        """
        if out.layout is not torch.strided:
            raise ConfigError(
                f"out of key {key!r} is sparse; pull writes dense tensors only, use "
                "row_sparse_pull(key, out, row_ids)"
            )
        self._check_form(key, out, "out")
        if any(step == 0 and size > 1 for step, size in zip(out.stride(), out.shape, strict=True)):
            raise ConfigError(
                f"out of key {key!r} is an expanded view, whose elements share memory; pull into "
                "out.contiguous()"
            )

    def check_sparse_out(self, key: Key, out: torch.Tensor) -> None:
        """Refuse a tensor that rows of this key cannot be pulled into.

        Raises:
            ConfigError: Shape or dtype does not fit, or ``out`` is not row-sparse.
        """
        if not is_row_sparse(out):
            raise ConfigError(
                f"out of key {key!r} is not row-sparse; row_sparse_pull writes sparse_coo tensors "
                "with one sparse dimension, use pull for a dense out"
            )
        self._check_form(key, out, "out")

    def _check_form(self, key: Key, tensor: torch.Tensor, what: str) -> None:
        if tensor.shape != self.shape:
            raise ConfigError(
                f"{what} of key {key!r} has shape {tuple(tensor.shape)}, but the key was "
                f"initialised with {tuple(self.shape)}"
            )
        if tensor.dtype != self.dtype:
            raise ConfigError(
                f"{what} of key {key!r} is {tensor.dtype}, but the key was initialised with "
                f"{self.dtype}; convert it first"
            )
        if tensor.device.type == "meta":
            raise UnsupportedError(f"{what} of key {key!r} is on the meta device: it has no data")


def _refuse_odd_layout(key: Key, value: torch.Tensor) -> None:
    if value.device.type == "meta":
        raise UnsupportedError(f"key {key!r}: a tensor on the meta device has no data")
    if value.layout is torch.strided or is_row_sparse(value):
        return
    raise UnsupportedError(
        f"key {key!r}: a store takes dense tensors and sparse_coo ones with exactly one sparse "
        f"dimension, got layout {value.layout}; use tensor.to_dense() or tensor.to_sparse(1)"
    )
