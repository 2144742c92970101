"""The sum of sparse COO tensors over all ranks, as embeddings with sparse gradients need it.

Ranks tell each other how many entries they have, then the entries themselves, and add them in the
ranks' order, everyone for itself: as ``torch.distributed`` does on Gloo, with the same bits.
Called by `BiremeProcessGroup`.
"""

from typing import cast

import torch
from torch import Tensor

from bireme.collective.bank.elements import Reduction
from bireme.collective.exchange import Exchange
from bireme.errors import MismatchError, UnsupportedError

__all__ = ("check_sparse", "sum_sparse")

_MOST_DIMS = 16


def check_sparse(tensor: Tensor, op: Reduction) -> None:
    """Raise `UnsupportedError` unless `sum_sparse` can do this.

    Example:
        >>> check_sparse(torch.eye(2).to_sparse(), Reduction.MAX)
        Traceback (most recent call last):
        bireme.errors.UnsupportedError: max of a sparse tensor: sparse tensors are summed only
    """
    if not tensor.is_sparse:
        raise UnsupportedError("sparse and dense tensors in one call of all_reduce")
    if op is not Reduction.SUM:
        raise UnsupportedError(f"{op} of a sparse tensor: sparse tensors are summed only")
    if not tensor.is_cpu:
        raise UnsupportedError(
            f"the backend bireme exchanges tensors on the CPU, not on {tensor.device}"
        )
    if tensor.dim() > _MOST_DIMS:
        raise UnsupportedError(f"a sparse tensor of {tensor.dim()} dimensions, over {_MOST_DIMS}")


def sum_sparse(exchange: Exchange, tensor: Tensor, rank: int, size: int, timeout_s: float) -> None:
    """Make a sparse tensor the sum of all ranks', coalesced.

    Args:
        exchange: What carries the entries.
        tensor: Any number of entries; changed in place. Shape, number of sparse dimensions and
            type are equal on all ranks.
        rank: This rank.
        size: How many ranks there are.
        timeout_s: Limit of each of the three exchanges.

    Raises:
        MismatchError: The ranks do not agree; every rank raises it, and nothing has changed.
        RankLost, WaitTimeout: A rank is missing.
    """
    with torch.no_grad():
        own = tensor.detach().coalesce()
        indices, values = own.indices().contiguous(), own.values().contiguous()
        counts = _compare(exchange, own, values, size, timeout_s)
        all_indices = [indices.new_empty((indices.shape[0], count)) for count in counts]
        all_values = [values.new_empty((count, *values.shape[1:])) for count in counts]
        exchange.all_gather(indices, all_indices, timeout_s)
        exchange.all_gather(values, all_values, timeout_s)
        total: Tensor | None = None
        for rank_indices, rank_values in zip(all_indices, all_values, strict=True):
            # Each rank's entries are coalesced, and bounds were checked where they were made.
            part = torch.sparse_coo_tensor(
                rank_indices, rank_values, own.shape, is_coalesced=True, check_invariants=False
            )
            total = part if total is None else total + part
        # Into the tensor itself: what detach() returns would take new entries alone.
        tensor.copy_(cast("Tensor", total).coalesce())


def _compare(
    exchange: Exchange, own: Tensor, values: Tensor, size: int, timeout_s: float
) -> list[int]:
    """Return how many entries each rank has."""
    known = torch.zeros(_MOST_DIMS + 4, dtype=torch.int64)
    shape = [own.sparse_dim(), own.dim(), _number_of(own.dtype), *own.shape]
    known[: len(shape)] = torch.tensor(shape)
    known[-1] = values.shape[0]
    told = [torch.empty_like(known) for _ in range(size)]
    exchange.all_gather(known, told, timeout_s)
    for other, each in enumerate(told):
        if not torch.equal(each[:-1], known[:-1]):
            raise MismatchError(
                f"all_reduce of sparse tensors of different shapes or types: rank {other} has "
                f"{each[3 : 3 + int(each[1])].tolist()} with {int(each[0])} sparse dimensions, "
                f"this rank {list(own.shape)} with {own.sparse_dim()}, of {own.dtype}"
            )
    return [int(each[-1]) for each in told]


def _number_of(dtype: torch.dtype) -> int:
    """Return the same number for a type in every process."""
    return int.from_bytes(str(dtype).removeprefix("torch.").encode()[:7], "little")
