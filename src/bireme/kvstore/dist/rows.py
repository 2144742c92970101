"""Pulls single rows of a key from the servers that hold them."""

import torch

from bireme.errors import UnsupportedError
from bireme.kvstore.dist.entry import DistEntry
from bireme.node.memory import Held, bytes_of
from bireme.node.tickets import Place
from bireme.node.worker import WorkerClient

__all__ = ("as_rows", "pull_rows")


def as_rows(dense: torch.Tensor) -> torch.Tensor:
    """Return a dense value as a row-sparse one of its rows that are not zero.

    The same as ``dense.to_sparse(1)``, which takes a thousand times as long for a large value.

    Example:
        >>> as_rows(torch.tensor([[0.0, 0.0], [0.0, 7.0]])).indices()
        tensor([[1]])
    """
    is_full = (dense != 0).reshape(len(dense), -1).any(1) if dense.numel() else dense.new_zeros(0)
    rows = is_full.nonzero().view(-1)
    return torch.sparse_coo_tensor(
        rows[None], dense[rows], dense.shape, is_coalesced=True, check_invariants=False
    )


def pull_rows(
    client: WorkerClient, entry: DistEntry, rows: torch.Tensor, timeout_s: float
) -> torch.Tensor:
    """Return rows of a value as a coalesced row-sparse CPU tensor.

    Args:
        client: The worker's link to the job.
        entry: The key.
        rows: Sorted, unique row numbers, int64, within the value.
        timeout_s: Limit of each request.

    Raises:
        UnsupportedError: A row lies on several servers.
    """
    width = entry.row_length
    rows = rows.cpu()
    content = torch.empty((len(rows), width), dtype=entry.layout.dtype)
    if not entry.has_whole_rows:
        raise UnsupportedError(
            f"key {entry.key!r} has rows of {width} elements that lie on several servers, so "
            "they cannot be pulled one by one; raise BIREME_SLICE_BYTES above a row's size"
        )
    for span in entry.spans if width else ():
        first, end = span.offset // width, (span.offset + span.length) // width
        low, high = torch.searchsorted(rows, torch.tensor([first, end])).tolist()
        if low == high:
            continue
        ids = (rows[low:high] - first).contiguous()
        place = Place([content[low:high].view(-1)])
        client.rows(span.slot, Held(bytes_of(ids)), high - low, place, timeout_s)
    shape = (len(rows), *entry.layout.shape[1:])
    return torch.sparse_coo_tensor(
        rows[None],
        content.view(shape),
        entry.layout.shape,
        is_coalesced=True,
        check_invariants=False,
    )
