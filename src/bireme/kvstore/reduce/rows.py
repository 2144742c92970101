"""Sums row-sparse tensors, with the same bits on every run and device."""

from collections.abc import Sequence

import torch

from bireme.update.layout import HALF_DTYPES

__all__ = ("sum_rows", "take_rows", "to_dense")


def sum_rows(values: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    """Return the sum of row-sparse tensors, coalesced, on ``device``.

    Args:
        values: ``sparse_coo`` tensors with one sparse dimension, of one shape and dtype, at
            least one; coalesced or not, on any devices.
        device: Where to add and where the sum lies.

    Guarantees:
        Each row is ``((v0 + v1) + v2) + ...`` in the order given; half types are summed in
        float32 and rounded once. The result shares no memory with ``values``.

    Example:
        >>> one = torch.sparse_coo_tensor([[1]], [[2.0, 3.0]], (4, 2), check_invariants=True)
        >>> sum_rows([one, one], torch.device("cpu")).to_dense()[1]
        tensor([4., 6.])
    """
    dtype = values[0].dtype
    wide = torch.float32 if dtype in HALF_DTYPES else dtype
    parts = [value.detach().to(device=device, dtype=wide).coalesce() for value in values]
    rows = torch.unique(torch.cat([part.indices()[0] for part in parts]), sorted=True)
    total = torch.zeros((len(rows), *values[0].shape[1:]), dtype=wide, device=device)
    for part in parts:
        # Rows of one part are unique, so no two additions meet and atomics cannot reorder them.
        total.index_add_(0, torch.searchsorted(rows, part.indices()[0]), part.values())
    return torch.sparse_coo_tensor(
        rows[None], total.to(dtype), values[0].shape, is_coalesced=True, check_invariants=False
    )


def to_dense(value: torch.Tensor) -> torch.Tensor:
    """Return a row-sparse tensor as a dense one.

    Unlike torch 2.13's own ``to_dense()`` it reads values of stride 0, such as the gradient of an
    embedding of width 1 below ``sum()``, which torch takes for zeros.

    Args:
        value: A ``sparse_coo`` tensor with one sparse dimension, coalesced or not.

    Example:
        >>> one = torch.ones(()).expand(1, 1)
        >>> to_dense(torch.sparse_coo_tensor([[1]], one, (2, 1), check_invariants=True))
        tensor([[0.],
                [1.]])
    """
    total = sum_rows([value], value.device)
    dense = torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return dense.index_copy_(0, total.indices()[0], total.values())


def take_rows(value: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the given rows of a value as a coalesced row-sparse tensor.

    Args:
        value: Dense, or row-sparse and coalesced; shape (num_rows, ...).
        rows: Sorted, unique row numbers, int64, on any device.

    Example:
        >>> take_rows(torch.eye(3), torch.tensor([2])).indices()
        tensor([[2]])
    """
    rows = rows.to(value.device)
    if value.layout is torch.strided:
        content = value.index_select(0, rows)
    else:
        held = value.indices()[0]
        content = torch.zeros((len(rows), *value.shape[1:]), dtype=value.dtype, device=value.device)
        if len(held) and len(rows):
            places = torch.searchsorted(held, rows).clamp_(max=len(held) - 1)
            found = held[places] == rows
            content[found] = value.values()[places[found]]
    return torch.sparse_coo_tensor(
        rows[None], content, value.shape, is_coalesced=True, check_invariants=False
    )
