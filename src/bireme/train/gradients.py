"""Gathers the gradients of one step from every replica, to be weighted and summed.

:class:`bireme.train.exchange.Exchange` calls it before it talks to a store. A parameter without
a gradient anywhere is left out, as a plain optimizer leaves it out; one that has a gradient on
some replicas counts as zero on the others.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from bireme.errors import StateError
from bireme.train.lineup import Lineup

__all__ = ("Gathered", "gather")


@dataclass(slots=True)
class Gathered:
    """Gradients to sum: ``dense[i][k]`` belongs to ``dense_positions[i]`` and replica k."""

    dense_positions: list[int] = field(default_factory=list)
    dense: list[list[torch.Tensor]] = field(default_factory=list)
    """The replicas' own ``.grad`` tensors, not scaled yet."""

    rows_positions: list[int] = field(default_factory=list)
    rows: list[list[torch.Tensor]] = field(default_factory=list)
    """Row-sparse gradients: scaled copies."""

    weights: Sequence[float] = ()

    def scale_(self) -> None:
        """Multiply the dense gradients by their replicas' weights, in place."""
        for number, weight in enumerate(self.weights):
            if self.dense and weight not in (0.0, 1.0):
                torch._foreach_mul_([grads[number] for grads in self.dense], weight)

    def unscale_(self) -> None:
        """Undo :meth:`scale_`, up to rounding: the step did not happen."""
        for number, weight in enumerate(self.weights):
            if self.dense and weight not in (0.0, 1.0):
                torch._foreach_div_([grads[number] for grads in self.dense], weight)

    def scaled(self) -> list[list[torch.Tensor]]:
        """Return the dense gradients, each multiplied by its replica's weight."""
        if not self.dense:
            return []
        columns: list[Sequence[torch.Tensor]] = []
        for number, weight in enumerate(self.weights):
            own = [grads[number] for grads in self.dense]
            columns.append(own if weight in (0.0, 1.0) else torch._foreach_mul(own, weight))
        return [list(grads) for grads in zip(*columns, strict=True)]


@torch.no_grad()
def gather(
    lineup: Lineup,
    positions: Iterable[int],
    weights: Sequence[float],
    elsewhere: Container[int] = (),
) -> Gathered:
    """Collect the gradients at ``positions``.

    Args:
        lineup: The replicas.
        positions: Parameters to look at.
        weights: One weight >= 0 for each replica. What a replica of weight 0 holds is ignored,
            even if it is stale or not finite.
        elsewhere: Positions at which another worker has a gradient: never left out.

    Raises:
        StateError: A parameter is frozen on some replicas only.
    """
    found, ignored = _sorted_out(lineup, positions, weights, elsewhere)
    _drop(lineup, ignored)
    for place, index in enumerate(found.dense_positions):
        if not found.dense[place]:
            found.dense[place] = _dense(lineup, index, weights)
    found.rows = [_rows(lineup, index, weights) for index in found.rows_positions]
    return found


def _sorted_out(
    lineup: Lineup,
    positions: Iterable[int],
    weights: Sequence[float],
    elsewhere: Container[int],
) -> tuple[Gathered, list[int]]:
    """Return the gradients, and the positions of those that count for nothing.

    A dense one that is missing on some replica is left as an empty list.
    """
    found, ignored = Gathered(weights=weights), []
    live = [params for params, weight in zip(lineup.params, weights, strict=True) if weight]
    everyone = len(live) == len(weights)
    for index in positions:
        grads = [params[index].grad for params in live]
        present = [grad for grad in grads if grad is not None]
        if not present and index not in elsewhere:
            ignored.append(index)
            continue
        whole = len(present) == len(grads)
        if not whole:
            _refuse_half_frozen(lineup, index)
        num_rows = sum(grad.layout is torch.sparse_coo for grad in present)
        if present and num_rows == len(present):
            found.rows_positions.append(index)
            continue
        found.dense_positions.append(index)
        # What is not complete is filled in later, once nothing can be refused any more.
        ready = whole and everyone and not num_rows and _can_be_written(present)
        found.dense.append(present if ready else [])
    return found, [] if everyone else ignored


def _dense(lineup: Lineup, index: int, weights: Sequence[float]) -> list[torch.Tensor]:
    grads: list[torch.Tensor] = []
    for param, weight in zip(lineup.same(index), weights, strict=True):
        grad = param.grad
        if grad is None or grad.layout is not torch.strided:
            zeros = torch.zeros_like(param)
            grad = param.grad = zeros if grad is None or not weight else _add_rows(zeros, grad)
        else:
            if not _can_be_written([*grads, grad]):
                grad = param.grad = grad.clone(memory_format=torch.contiguous_format)
            if not weight:
                grad.zero_()
        grads.append(grad)
    return grads


def _can_be_written(grads: Sequence[torch.Tensor]) -> bool:
    """Return whether no element appears twice: in an expanded tensor, or in two replicas."""
    places = {grad.data_ptr() for grad in grads}
    return len(places) == len(grads) and all(
        grad.is_contiguous() or 0 not in grad.stride() for grad in grads
    )


def _add_rows(total: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    # Not to_dense(): torch 2.13 returns zeros for values of stride 0, which sum().backward()
    # leaves in an embedding of width 1.
    return total.index_add_(0, rows._indices()[0], rows._values())


def _rows(lineup: Lineup, index: int, weights: Sequence[float]) -> list[torch.Tensor]:
    grads = []
    for param, weight in zip(lineup.same(index), weights, strict=True):
        grad = param.grad
        if grad is None or not weight:
            shape = (0, *param.shape[1:])
            grad = torch.sparse_coo_tensor(
                torch.empty((1, 0), dtype=torch.int64, device=param.device),
                torch.empty(shape, dtype=param.dtype, device=param.device),
                param.shape,
                is_coalesced=True,
                check_invariants=False,
            )
        elif weight != 1.0:
            grad = grad.coalesce() * weight
        grads.append(grad.coalesce())
    return grads


def _drop(lineup: Lineup, positions: Iterable[int]) -> None:
    # Only replicas of weight 0 hold a gradient here. Left in place on replica 0, it would be
    # applied although it counts for nothing.
    for index in positions:
        for param in lineup.same(index):
            param.grad = None


def _refuse_half_frozen(lineup: Lineup, index: int) -> None:
    flags = [param.requires_grad for param in lineup.same(index)]
    if len(set(flags)) > 1:
        frozen = [number for number, flag in enumerate(flags) if not flag]
        raise StateError(
            f"parameter {lineup.names[index]!r} is frozen on replicas {frozen} only; set "
            f"requires_grad alike on every replica"
        )
