"""Whether an optimizer computes over a whole value at once, found by trying on small tensors.

Such a value must not be cut over servers: a part's norm, factors or shape are not the whole's.
Stores on servers ask before they place a key.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch

from bireme.update.classes import is_of_torch
from bireme.update.spec import OptimizerSpec, Plain

__all__ = ("WHOLE_IN_TORCH", "needs_whole_values", "rehearse")

WHOLE_IN_TORCH = frozenset({"Adafactor", "Muon"})
"""Classes of ``torch.optim`` for which :func:`rehearse` says so, whatever their numbers."""

_ROWS, _COLUMNS = 4, 6
_STEPS = 3
_State = dict[str, object]


def needs_whole_values(spec: OptimizerSpec) -> bool:
    """Return whether a value that ``spec`` updates must lie on one server.

    Example:
        >>> [needs_whole_values(OptimizerSpec(name)) for name in ("muon", "adafactor", "adam")]
        [True, True, False]
    """
    return spec.name in WHOLE_IN_TORCH if is_of_torch(spec.name) else rehearse(spec)


def rehearse(spec: OptimizerSpec) -> bool:
    """Return whether ``spec`` treats the parts of a small value unlike the whole.

    It may be cut when its parts, flat or as rows, end as the parts of the whole value do, and so
    does all state. An optimizer that takes no gradient of these forms is taken to need whole
    values.
    """
    keys = dict.fromkeys([None, *spec.groups, *spec.lr_mult, *spec.wd_mult])
    distinct = {tuple(sorted(spec.arguments(key).items())) for key in keys}
    return any(_needs_whole(spec.name, each) for each in distinct)


@lru_cache(maxsize=256)
def _needs_whole(name: str, arguments: tuple[tuple[str, Plain], ...]) -> bool:
    params = dict(arguments)
    if params.get("lr") == 0:
        # Nothing would move. The rate may be raised later, when keys are placed already.
        params["lr"] = 0.01
    spec = OptimizerSpec(name, params)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        state = torch.random.get_rng_state()
        for forms in ((_flat, _as_rows), (_sparse_rows,)):
            torch.random.set_rng_state(state)
            whole = _run(spec, [_value()], forms[-1])
            if whole is not None:
                return any(_differs(spec, whole, form) for form in forms)
    return True


def _differs(spec: OptimizerSpec, whole: Sequence[_State], form: "_Form") -> bool:
    parts = _run(spec, list(_value().chunk(2)), form)
    return parts is None or not _equal(whole[0], parts)


_Form = Callable[[torch.Tensor], torch.Tensor]


def _flat(part: torch.Tensor) -> torch.Tensor:
    return part.reshape(-1)


def _as_rows(part: torch.Tensor) -> torch.Tensor:
    return part


def _sparse_rows(part: torch.Tensor) -> torch.Tensor:
    return part.to_sparse(1)


def _value() -> torch.Tensor:
    return torch.linspace(-1.0, 2.0, _ROWS * _COLUMNS, dtype=torch.float64).view(_ROWS, _COLUMNS)


def _gradients() -> list[torch.Tensor]:
    # The halves differ much, and small gradients follow large ones: a limit on a norm shows.
    shape = torch.linspace(0.5, 9.0, _ROWS * _COLUMNS, dtype=torch.float64).view(_ROWS, _COLUMNS)
    waves = torch.sin(shape * shape) * shape.exp() * 1e-2
    return [waves * 10.0 ** (1 - step) for step in range(_STEPS)]


def _run(spec: OptimizerSpec, parts: Sequence[torch.Tensor], form: _Form) -> list[_State] | None:
    """Return the value and the state of each part after some steps; ``None`` when refused."""
    values = [
        (part if form is _sparse_rows else form(part)).clone().requires_grad_() for part in parts
    ]
    try:
        # Each part by itself, as on servers that know nothing of each other.
        optimizers = [spec.build([value]) for value in values]
        for gradient in _gradients():
            pieces = gradient.chunk(len(values))
            for optimizer, value, piece in zip(optimizers, values, pieces, strict=True):
                value.grad = form(piece).clone()
                optimizer.step()
    except Exception:  # whatever an optimizer raises: it cannot take this form
        return None
    return [
        {**optimizer.state[value], "": value.detach()}
        for optimizer, value in zip(optimizers, values, strict=True)
    ]


def _equal(whole: _State, parts: Sequence[_State]) -> bool:
    if any(part.keys() != whole.keys() for part in parts):
        return False
    return all(_joins(value, [part[name] for part in parts]) for name, value in whole.items())


def _joins(whole: object, parts: Sequence[object]) -> bool:
    if not isinstance(whole, torch.Tensor) or whole.dim() == 0:
        return all(_same(whole, part) for part in parts)
    tensors = [part for part in parts if isinstance(part, torch.Tensor) and part.dim()]
    if len(tensors) < len(parts) or whole.shape != (_ROWS, _COLUMNS):
        return False
    if sum(part.numel() for part in tensors) != whole.numel():
        return False
    dense = [part.to_dense().reshape(-1) for part in tensors]
    return torch.allclose(torch.cat(dense), whole.to_dense().reshape(-1), rtol=1e-9, atol=1e-12)


def _same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and torch.allclose(one.double(), other.double(), rtol=1e-9)
    return one == other
