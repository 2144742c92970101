"""Steps the tables of a model together with its parameters, whatever way the trainer works.

:func:`with_tables` puts a :class:`TableMode` around the trainer's mode where there are tables, and
leaves it alone where there are none.
"""

from collections.abc import Sequence

import torch

from bireme.errors import StateError, UnsupportedError
from bireme.nn.steps import TableSteps
from bireme.train.lineup import Lineup
from bireme.train.mode import Closure, Mode, Rider

__all__ = ("TableMode", "with_tables")


def with_tables(mode: Mode, lineup: Lineup, optimizer: torch.optim.Optimizer) -> Mode:
    """Return a mode that also steps the tables of a model.

    Args:
        mode: How the trainer works.
        lineup: Its replicas.
        optimizer: Its optimizer, which tables without one of their own follow.

    Raises:
        UnsupportedError: A table would follow an optimizer that servers cannot run.
    """
    tables = TableSteps(lineup.modules, optimizer)
    return TableMode(mode, tables, len(lineup)) if tables else mode


class TableMode:
    """Pushes gradients of rows when the parameters step. A :class:`~bireme.train.mode.Mode`.

    Args:
        mode: Steps the parameters.
        tables: The tables.
        num_replicas: Replicas in this process.
    """

    def __init__(self, mode: Mode, tables: TableSteps, num_replicas: int) -> None:
        self._mode = mode
        self._tables = tables
        self._counts: Sequence[float] = [1.0] * num_replicas

    @property
    def scales(self) -> bool:
        """Whether a ``GradScaler`` must leave unscaling to :meth:`scaled_step`.

        Raises:
            UnsupportedError: It must not, and so would never tell the scale.
        """
        if not self._mode.scales:
            raise UnsupportedError(
                "a GradScaler and tables on servers need a trainer that knows the scale; give it "
                "kvstore='dist_sync' or another store"
            )
        return True

    def step(self, closure: Closure, counts: Sequence[float]) -> float | None:
        """Step rows and parameters."""
        if closure is None:
            # Rows are on their way to the servers while dense gradients are merged.
            self._tables.push(counts)
            return self._mode.step(None, counts)
        loss = self._mode.step(closure, counts)
        self._tables.push(counts)
        return loss

    def merge(self, counts: Sequence[float]) -> None:
        """Merge gradients of parameters only; those of rows keep their weights for the step."""
        self._mode.merge(counts)
        self._counts = counts

    def update(self, closure: Closure) -> float | None:
        """Update with the gradients as they are; rows, with all gradients since the last step."""
        self._tables.push(self._counts)
        return self._mode.update(closure)

    def refresh(self, positions: Sequence[int]) -> None:
        """Take note of which parameters are optimized."""
        self._mode.refresh(positions)

    def ride(self, rider: Rider) -> None:
        """Let a rider come along."""
        self._mode.ride(rider)

    def forget(self) -> None:
        """Forget gradients: they are being cleared."""
        self._mode.forget()
        self._tables.clear()

    def share_overflow(self) -> None:
        """Let replica 0's gradients overflow if any replica's do."""
        self._mode.share_overflow()

    def scaled_step(
        self, scale: torch.Tensor | None, found_inf: float | torch.Tensor, counts: Sequence[float]
    ) -> float | None:
        """Step for a ``GradScaler``: not at all if gradients overflowed, else unscaled.

        Raises:
            StateError: Gradients of parameters were unscaled before, and those of rows were not.
        """
        if float(found_inf):
            # Every worker skips the step, and tables have no round for it.
            self._tables.clear()
        elif scale is None:
            raise StateError(
                "scaler.unscale_(trainer) does not know the gradients of tables on servers; leave "
                "it out"
            )
        else:
            self._tables.push(counts, float(scale))
        return self._mode.scaled_step(scale, found_inf, counts)

    def pull_state(self) -> None:
        """Bring the optimizer's state here; that of rows stays on the servers."""
        self._mode.pull_state()
