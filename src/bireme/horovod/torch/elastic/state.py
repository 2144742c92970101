"""What a training run of torch must remember, and how each kind of thing is kept."""

import copy
from typing import Any

import torch

from bireme.horovod.common.elastic import ObjectState
from bireme.horovod.torch.elastic.sampler import ElasticSampler
from bireme.horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from bireme.horovod.torch.mpi_ops import rank

__all__ = (
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
)


class TorchState(ObjectState):
    """Models, optimizers, samplers and plain values, committed and restored together.

    Args:
        model: A module.
        optimizer: Its optimizer.
        kwargs: More of them, and plain values such as ``epoch=0``; each becomes an attribute.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = {**kwargs, "model": model, "optimizer": optimizer}
        found = {name: _handler_of(value) for name, value in given.items()}
        handlers = {name: each for name, each in found.items() if each is not None}
        self._handlers: dict[str, StateHandler] = {}
        for name, handler in handlers.items():
            object.__setattr__(self, name, handler.value)
        self._handlers = handlers
        plain = {name: value for name, value in given.items() if name not in handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **plain)

    def save(self) -> None:
        """Keep everything as it is now."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Make everything as it was when it was last kept."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Make everything as it is on rank 0, and keep it."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()
        for handler in self._handlers.values():
            handler.save()

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)


class StateHandler:
    """Keeps one kind of thing; derive from it for kinds of your own.

    Args:
        value: The thing.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep the thing as it is now."""
        raise NotImplementedError

    def restore(self) -> None:
        """Make it as it was when it was last kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Make it as it is on rank 0."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Keep another thing from now on."""
        self.value = value
        self.save()


class _DictHandler(StateHandler):
    """Keeps what has ``state_dict`` and ``load_state_dict``."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Keep a copy of the state."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Load the copy; it stays, for another time."""
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_DictHandler):
    """Keeps a module."""

    def sync(self) -> None:
        """Broadcast its parameters and buffers."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(_DictHandler):
    """Keeps an optimizer."""

    def sync(self) -> None:
        """Broadcast its state."""
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(_DictHandler):
    """Keeps how far an epoch is."""

    def sync(self) -> None:
        """Broadcast how far it is."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))


_REGISTRY: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Return which handler keeps which type; the first that fits does."""
    return list(_REGISTRY)


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replace which handler keeps which type."""
    _REGISTRY[:] = registry


def _handler_of(value: Any) -> StateHandler | None:
    return next((make(value) for kind, make in _REGISTRY if isinstance(value, kind)), None)
