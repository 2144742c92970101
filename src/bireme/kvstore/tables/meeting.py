"""How the workers of a table agree. :class:`~bireme.kvstore.tables.table.Table` calls it."""

from collections.abc import Callable
from typing import Any

import torch

from bireme.errors import BiremeError, ConfigError
from bireme.kvstore.tables.options import TableOptions

__all__ = ("Meeting",)


class Meeting:
    """What all workers of a table do together; the store's own agreement carries it.

    Args:
        rank: This worker.
        num_workers: Workers of the job.
        add: Sums a tensor over all workers under a name.
        share_outcome: Raises rank 0's error on every worker.
        refuse_closed: Raises when the store is closed.
    """

    def __init__(
        self,
        rank: int,
        num_workers: int,
        add: Callable[[str, torch.Tensor], torch.Tensor],
        share_outcome: Callable[[Any], None],
        refuse_closed: Callable[[], None],
    ) -> None:
        self._rank = rank
        self._num_workers = num_workers
        self._add = add
        self._share_outcome = share_outcome
        self.refuse_closed = refuse_closed

    def meet(self) -> None:
        """Return when every worker has come here."""
        self._add("meeting", torch.zeros(1))

    def compare(self, what: str, options: TableOptions) -> None:
        """Return when all workers are seen to have the same options.

        Args:
            what: Name of the comparison, alike on all workers.
            options: Of the table that this worker declares.

        Raises:
            ConfigError: Somebody's differ. Raised on every worker; says whose.
        """
        mine = torch.zeros(self._num_workers, 32, dtype=torch.uint8)
        mine[self._rank] = torch.frombuffer(bytearray(options.digest()), dtype=torch.uint8)
        told = self._add(what, mine)
        others = [each for each in range(self._num_workers) if not torch.equal(told[each], told[0])]
        if others:
            names = ", ".join(f"W[{each}]" for each in others[:8])
            raise ConfigError(
                f"every worker must declare the same tables in the same order, but table "
                f"{options.name!r} ({options}) here is another one on {names} than on W[0]"
            )

    def rank_0_does(self, work: Callable[[], None]) -> None:
        """Let rank 0 do ``work`` while no worker pushes; each has flushed its pushes before.

        Raises:
            BiremeError: What ``work`` raised. Raised on every worker.
        """
        # From here on no worker pushes until all are told of the outcome.
        self.meet()
        error: BiremeError | OSError | None = None
        if self._rank == 0:
            try:
                work()
            except (BiremeError, OSError) as refusal:
                error = refusal
        self._share_outcome(error)
