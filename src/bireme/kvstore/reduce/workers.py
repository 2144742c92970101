"""Sums over the workers of a job what another reducer has summed over this worker's devices."""

from collections.abc import Sequence

import torch

from bireme.collective.base import Collectives
from bireme.kvstore.base import Key
from bireme.kvstore.reduce.base import Reducer, Sum
from bireme.kvstore.reduce.exchanges import Exchange
from bireme.kvstore.reduce.rows import sum_rows

__all__ = ("WorkersReducer", "gather_rows")


class WorkersReducer:
    """A `Reducer` around another one.

    Args:
        inner: Adds up what this worker has.
        exchange: Adds that up over the workers.

    Guarantees:
        `run` returns when every worker has run a job of each key, and gives all the same bits.
    """

    def __init__(self, inner: Reducer, exchange: Exchange) -> None:
        self._inner = inner
        self.exchange = exchange

    def check(self, key: Key, values: Sequence[torch.Tensor]) -> None:
        """See `Reducer.check`."""
        self._inner.check(key, values)
        for value in values:
            self.exchange.check(key, value)

    def run(self, jobs: Sequence[Sum]) -> None:
        """See `Reducer.run`."""
        self._inner.run([Sum(job.key, job.values, job.outs[:1]) for job in jobs])
        under_way = []
        for job in jobs:
            total = job.outs[0].resolve_neg().contiguous()
            under_way.append((job, total, self.exchange.begin(job.key, total)))
        for job, total, pending in under_way:
            pending.wait()
            for out in job.outs:
                if out is not total:
                    out.copy_(total)

    def forget(self) -> None:
        """See `Reducer.forget`."""
        self._inner.forget()
        self.exchange.forget()


def gather_rows(
    collectives: Collectives, name: str, rows: torch.Tensor, root: int | None = None
) -> torch.Tensor:
    """Return the sum of every worker's row-sparse tensor, coalesced; or the root's.

    Args:
        collectives: What connects the workers.
        name: The operation's name.
        rows: Row-sparse and coalesced; of one shape and dtype on all workers.
        root: Whose rows count; None: everybody's.
    """
    counts = root is None or collectives.topology.rank == root
    indices = rows.indices()[0] if counts else rows.indices()[0, :0]
    values = rows.values() if counts else rows.values()[:0]
    sizes, all_indices, all_values = collectives.allgather(
        [torch.tensor([len(indices)]), indices.contiguous(), values.contiguous()],
        names=[f"{name}.{part}" for part in ("sizes", "indices", "values")],
    ).wait()
    parts = sizes.tolist()
    pieces = [
        torch.sparse_coo_tensor(
            index[None], value, rows.shape, is_coalesced=True, check_invariants=False
        )
        for index, value in zip(
            torch.split(all_indices, parts), torch.split(all_values, parts), strict=True
        )
    ]
    return sum_rows(pieces, rows.device)
