"""What ``torch.amp.GradScaler`` needs to be right about several replicas.

The scaler looks at the gradients of the parameters that an optimizer names: replica 0's. Before
it looks, :func:`share_overflow` lets replica 0 overflow if any other replica does; after it found
none, :func:`unscale` divides the gradients of all. The trainer's modes call both.

Source:
    The contract between ``GradScaler.step`` and optimizers in ``torch/amp/grad_scaler.py``:
    ``_step_supports_amp_scaling``, ``grad_scale`` and ``found_inf``.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch

from bireme.errors import ConfigError
from bireme.train.lineup import Lineup

__all__ = ("is_finite", "share_overflow", "unscale")


@torch.no_grad()
def is_finite(grads: Iterable[torch.Tensor]) -> bool:
    """Return whether no element is infinite or NaN.

    Example:
        >>> is_finite([torch.ones(2)]), is_finite([torch.tensor([1.0, float("inf")])])
        (True, False)
    """
    alike: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for grad in grads:
        values = _values(grad)
        if values.numel():
            alike.setdefault((values.device, values.dtype), []).append(values)
    norms = [torch.stack(torch._foreach_norm(each, math.inf)) for each in alike.values()]
    flags = [torch.isfinite(each).all() for each in norms]
    return all(bool(flag) for flag in flags)


@torch.no_grad()
def share_overflow(
    lineup: Lineup, positions: Sequence[int], total: Callable[[float], float] | None
) -> None:
    """Make replica 0's gradients NaN if those of any other replica or worker are not finite.

    Replica 0 is given zero gradients where only others have one, so that the scaler has
    something to look at.

    Args:
        lineup: The replicas.
        positions: The optimized parameters.
        total: Sums a number over all workers; ``None`` when there is one.
    """
    here = _grads(lineup.params[0], positions)
    others = [grad for params in lineup.params[1:] for grad in _grads(params, positions)]
    if not here and others:
        for index in positions:
            if any(param.grad is not None for param in lineup.same(index)):
                param = lineup.params[0][index]
                param.grad = torch.zeros_like(param)
        here = _grads(lineup.params[0], positions)
    # The scaler checks replica 0 itself, but does not tell the other workers.
    bad = float(not is_finite(others if total is None else [*others, *here]))
    if bad if total is None else total(bad):
        for grad in here:
            _values(grad).fill_(math.nan)


@torch.no_grad()
def unscale(lineup: Lineup, positions: Sequence[int], scale: torch.Tensor) -> None:
    """Divide the gradients of every replica by ``scale``, a tensor with one element.

    Raises:
        ConfigError: Gradients are float16, in which small values are already lost.
    """
    # A number, because a replica's gradients may lie on several devices. The reciprocal is taken
    # in float64 and rounded, as torch's scaler does it.
    factor = float(scale.double().reciprocal().float())
    everything = [_grads(params, positions) for params in lineup.params]
    for grads in everything:
        if any(grad.dtype is torch.float16 for grad in grads):
            raise ConfigError(
                "gradients of float16 parameters cannot be unscaled; keep parameters in float32 "
                "and use torch.autocast"
            )
    for grads in everything:
        if grads:
            torch._foreach_mul_([_values(grad) for grad in grads], factor)


def _grads(params: Sequence[torch.nn.Parameter], positions: Iterable[int]) -> list[torch.Tensor]:
    found = []
    for index in positions:
        grad = params[index].grad
        if grad is not None and grad.layout is torch.sparse_coo and not grad.is_coalesced():
            # Repeated rows may overflow only when they are added.
            grad = params[index].grad = grad.coalesce()
        if grad is not None:
            found.append(grad)
    return found


def _values(grad: torch.Tensor) -> torch.Tensor:
    return grad._values() if grad.layout is torch.sparse_coo else grad
