"""What each worker has last read of each slot, and the compensation of delayed gradients by it.

Called by :mod:`bireme.node.values` for stores that apply pushes one by one.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bireme.errors import ConfigError
from bireme.node.cells import Cell
from bireme.node.memory import Held, tensor_over
from bireme.node.partials import DensePartial, RowsPartial

if TYPE_CHECKING:
    from bireme.node.tickets import Slot

__all__ = ("Reads", "compensation_of")


class Reads:
    """Keeps the value that each rank was last sent, for as long as it computes from it.

    Guarantees:
        Nothing is copied: what a reader was sent never changes, so that it is kept by keeping its
        memory. A slot takes at most one value for each worker besides its own.

    Source:
        Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation",
        ICML 2017 (arXiv 1609.08326), algorithm 2 (DC-ASGD-c).
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Slot, int], Held] = {}

    def keep(self, cell: Cell, rank: int) -> None:
        """Note that ``rank`` is being sent the current value."""
        held = cell.read()
        held.retain()
        old = self._kept.get((cell.slot, rank))
        self._kept[cell.slot, rank] = held
        if old is not None:
            old.release()

    def compensate(
        self, cell: Cell, rank: int, total: DensePartial | RowsPartial, strength: float
    ) -> None:
        """Add ``strength * g * g * (w_now - w_then)`` to a gradient, in place.

        It is the first term of the gradient's Taylor series from the value that ``rank`` read to
        the present one, with the outer product of the gradient for the Hessian and only its
        diagonal. A rank that has not read the whole slot gets its gradient as it is.

        Args:
            cell: The slot; its value is that before the update.
            rank: Who computed the gradient.
            total: The gradient.
            strength: The factor.
        """
        kept, shape = self._kept.get((cell.slot, rank)), cell.shape
        if kept is None or not shape.dtype.is_floating_point:
            return
        now = cell.parameter().reshape(-1)
        then = tensor_over(kept.view, shape.dtype, shape.length)
        if isinstance(total, RowsPartial):
            gradient, form = total.rows, (shape.num_rows, shape.row_length)
            moved = now.view(form)[total.ids] - then.view(form)[total.ids]
        else:
            gradient, moved = total.tensor, now - then
        gradient.addcmul_(moved.mul_(gradient), gradient, value=strength)


def compensation_of(body: Mapping[str, Any]) -> float:
    """Return the strength for gradients as they are pushed, from an optimizer's plain data.

    The term is of the second order in the gradient, so that a factor on the gradient counts twice.

    Raises:
        ConfigError: It is not a finite number >= 0.

    Example:
        >>> compensation_of({"delay_compensation": 0.04, "rescale_grad": 0.5})
        0.02
    """
    strength = body.get("delay_compensation", 0.0)
    if not isinstance(strength, int | float) or not 0 <= strength < math.inf:
        raise ConfigError(f"delay_compensation must be a finite number >= 0, got {strength!r:.60}")
    return float(strength) * float(body.get("rescale_grad", 1.0))
