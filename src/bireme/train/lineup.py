"""Lines up the same parameter of several copies of a model. The trainer builds one of these.

Replica 0 is the model that the optimizer owns; the others follow it. A parameter is known by its
position in replica 0's ``named_parameters()``, in which tied parameters appear once.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bireme.errors import ConfigError

__all__ = ("Lineup",)


class Lineup:
    """Copies of one model, one for each context.

    Args:
        model: A module, or a list of modules with the same parameter names, shapes and element
            types, and the same ties between them. Devices may differ.

    Raises:
        ConfigError: The modules differ, share a parameter, or have none.

    Example:
        >>> lineup = Lineup([nn.Linear(2, 1), nn.Linear(2, 1)])
        >>> lineup.names, lineup.shape
        (['weight', 'bias'], (2, 2))
    """

    def __init__(self, model: nn.Module | Sequence[nn.Module]) -> None:
        self.modules: list[nn.Module] = _as_modules(model)
        first = dict(self.modules[0].named_parameters())
        if not first:
            raise ConfigError(f"{type(self.modules[0]).__name__} has no parameters to train")
        self.names: list[str] = list(first)
        """Replica 0's name for each parameter; a tied one has its first name."""
        _refuse_lazy(self.modules)
        self.params: list[list[nn.Parameter]] = [
            list(dict(module.named_parameters()).values()) for module in self.modules
        ]
        """``params[replica][position]``."""
        for number in range(1, len(self.modules)):
            self._refuse_different(number)
        self._positions = {id(param): index for index, param in enumerate(self.params[0])}

    @property
    def shape(self) -> tuple[int, int]:
        """How many replicas there are, and how many parameters each has."""
        return len(self.modules), len(self.names)

    def __len__(self) -> int:
        return len(self.modules)

    def positions(self, params: Iterable[torch.Tensor]) -> list[int]:
        """Return the positions of ``params``, tensors of replica 0.

        Raises:
            ConfigError: One of them is not a parameter of replica 0.
        """
        found = []
        for param in params:
            index = self._positions.get(id(param))
            if index is None:
                what = f"{type(param).__name__} of shape {tuple(getattr(param, 'shape', ()))}"
                raise ConfigError(
                    f"the optimizer holds a {what} that is no parameter of the (first) model; "
                    f"build it from that model's parameters()"
                )
            found.append(index)
        return found

    def same(self, index: int) -> list[nn.Parameter]:
        """Return parameter ``index`` of every replica."""
        return [params[index] for params in self.params]

    def follow_first(self, positions: Sequence[int] | None = None) -> None:
        """Copy replica 0's parameters to the others; all of them when ``positions`` is None."""
        if len(self) == 1:
            return
        chosen = range(len(self.names)) if positions is None else positions
        sources: list[torch.Tensor] = [self.params[0][index] for index in chosen]
        if not sources:
            return
        with torch.no_grad():
            for params in self.params[1:]:
                torch._foreach_copy_([params[index] for index in chosen], sources)

    def follow_first_buffers(self) -> None:
        """Copy replica 0's buffers to the others."""
        first = dict(self.modules[0].named_buffers())
        with torch.no_grad():
            for module in self.modules[1:]:
                for name, buffer in module.named_buffers():
                    buffer.copy_(first[name])

    def clear_grads(self, positions: Iterable[int], *, set_to_none: bool) -> None:
        """Clear the gradients of every replica but the first, as ``zero_grad`` does."""
        for index in positions:
            for params in self.params[1:]:
                grad = params[index].grad
                if grad is None:
                    continue
                if set_to_none:
                    params[index].grad = None
                else:
                    grad.detach_().zero_()

    def _refuse_different(self, number: int) -> None:
        first, other = self.modules[0], self.modules[number]
        if _ties(first) != _ties(other):
            raise ConfigError(
                f"replica {number} has other parameter names or ties than replica 0; "
                f"make replicas with copy.deepcopy"
            )
        if _buffers(first) != _buffers(other):
            raise ConfigError(f"replica {number} has other buffers than replica 0")
        shared = {id(param) for params in self.params[:number] for param in params}
        pairs = zip(self.names, self.params[0], self.params[number], strict=True)
        for name, ours, theirs in pairs:
            if id(theirs) in shared:
                raise ConfigError(
                    f"replica {number} shares parameter {name!r} with another replica; "
                    f"make replicas with copy.deepcopy"
                )
            if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
                raise ConfigError(
                    f"parameter {name!r} is {theirs.dtype} {tuple(theirs.shape)} in replica "
                    f"{number} but {ours.dtype} {tuple(ours.shape)} in replica 0"
                )


def _as_modules(model: nn.Module | Sequence[nn.Module]) -> list[nn.Module]:
    if isinstance(model, nn.Module):
        return [model]
    if not isinstance(model, list | tuple) or not model:
        raise ConfigError(
            f"model must be a torch.nn.Module or a list of replicas, got {model!r:.80}"
        )
    for module in model:
        if not isinstance(module, nn.Module):
            raise ConfigError(f"a replica must be a torch.nn.Module, got {type(module).__name__}")
    return list(model)


def _refuse_lazy(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if is_lazy(tensor):
                raise ConfigError(f"{name!r} has no shape yet; run one forward pass first")


def _ties(module: nn.Module) -> dict[str, str]:
    """Map every parameter name to the first name of the same parameter."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(param), name)
        for name, param in module.named_parameters(remove_duplicate=False)
    }


def _buffers(module: nn.Module) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (buffer.shape, buffer.dtype) for name, buffer in module.named_buffers()}
