"""Adam and AdamW for many rows with a step count each. Called by :mod:`bireme.update.rowwise`.

torch has one step count for a parameter; its formula with a column of counts is here.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch

__all__ = ("adam_step",)


class _State(Protocol):
    tensors: dict[str, torch.Tensor]
    numbers: dict[str, torch.Tensor]


def adam_step(
    arguments: Mapping[str, Any],
    rows: torch.Tensor,
    grads: torch.Tensor,
    state: _State,
    *,
    decoupled: bool,
) -> None:
    """Update rows and their state in place; ``grads`` may be overwritten.

    Args:
        arguments: Those of ``torch.optim.Adam`` or ``AdamW``.
        rows: Of shape ``(n, dim)``.
        grads: Theirs.
        state: ``exp_avg``, ``exp_avg_sq`` (and ``max_exp_avg_sq``), and ``step``.
        decoupled: Weight decay shrinks the rows, as in AdamW, instead of adding to the gradient.

    Source:
        Kingma and Ba, "Adam", ICLR 2015, algorithm 1; Loshchilov and Hutter, "Decoupled weight
        decay regularization", ICLR 2019; Reddi et al., "On the convergence of Adam and beyond",
        ICLR 2018, in the order of operations of ``torch/optim/adam.py``.
    """
    lr, eps, decay = arguments["lr"], arguments["eps"], arguments["weight_decay"]
    beta1, beta2 = arguments["betas"]
    step = state.numbers["step"].add_(1.0)
    if arguments.get("maximize"):
        grads.neg_()
    if decay and decoupled:
        rows.mul_(1.0 - lr * decay)
    elif decay:
        grads.add_(rows, alpha=decay)
    average, square = state.tensors["exp_avg"], state.tensors["exp_avg_sq"]
    average.lerp_(grads, 1.0 - beta1)
    square.mul_(beta2).addcmul_(grads, grads, value=1.0 - beta2)
    if arguments.get("amsgrad"):
        square = torch.maximum(state.tensors["max_exp_avg_sq"], square)
        state.tensors["max_exp_avg_sq"].copy_(square)
    size = (lr / (1.0 - beta1**step)).to(rows.dtype)[:, None]
    root = (1.0 - beta2**step).sqrt().to(rows.dtype)[:, None]
    rows.sub_(size * average / square.sqrt().div_(root).add_(eps))
