"""Records what a model computes when, where a job asks for a timeline. Owned by the trainer."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import nn
from torch.utils.hooks import RemovableHandle

from bireme.kvstore.base import KVStore, KVStoreBase
from bireme.observe.timeline import Timeline
from bireme.train.lineup import Lineup

__all__ = ("Tracing", "timed")

T = TypeVar("T")

LEAST_S = 50e-6
"""Shorter waits are none."""


class Tracing:
    """Hooks that record the forward of each layer, and the backward up to each gradient.

    Args:
        lineup: The replicas; each has a lane.
        store: Whose timeline it is; where there is none, nothing is done.
    """

    def __init__(self, lineup: Lineup, store: KVStoreBase | None) -> None:
        self._timeline = store.timeline if isinstance(store, KVStore) else None
        self._handles: list[RemovableHandle] = []
        if self._timeline is not None:
            self._watch(lineup, self._timeline)

    def _watch(self, lineup: Lineup, timeline: Timeline) -> None:
        weakref.finalize(self, _remove, self._handles)
        for number, (module, params) in enumerate(zip(lineup.modules, lineup.params, strict=True)):
            lane = _Lane(timeline, f"compute {number}" if number else "compute")
            for name, layer in module.named_modules():
                if not any(True for _ in layer.children()):
                    self._handles += lane.watch_layer(name, layer)
            for name, param in zip(lineup.names, params, strict=True):
                if param.requires_grad:
                    self._handles.append(lane.watch_gradient(name, param))

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record what happens inside."""
        timeline = self._timeline
        began_s = 0.0 if timeline is None else timeline.now_s()
        try:
            yield
        finally:
            if timeline is not None:
                timeline.span("compute", name, began_s, timeline.now_s())

    def close(self) -> None:
        """Remove the hooks."""
        _remove(self._handles)


def timed(timeline: Timeline | None, name: str, work: Callable[[], T]) -> T:
    """Do ``work``, and record it as a wait if it takes any time."""
    if timeline is None:
        return work()
    began_s = timeline.now_s()
    try:
        return work()
    finally:
        ended_s = timeline.now_s()
        if ended_s - began_s >= LEAST_S:
            timeline.span("compute", name, began_s, ended_s)


class _Lane:
    """The hooks of one replica."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        self._timeline = timeline
        self._name = name
        self._since_s = 0.0
        """When the last layer or gradient was done: the next gradient is computed from then on."""

    def watch_layer(self, name: str, layer: nn.Module) -> list[RemovableHandle]:
        """Record the forward of a layer."""
        began_s = 0.0

        def begin(*_: object) -> None:
            nonlocal began_s
            began_s = self._timeline.now_s()

        def end(*_: object) -> None:
            self._since_s = self._timeline.now_s()
            self._timeline.span(self._name, f"forward {name}", began_s, self._since_s)

        return [layer.register_forward_pre_hook(begin), layer.register_forward_hook(end)]

    def watch_gradient(self, name: str, param: Any) -> RemovableHandle:
        """Record the backward that ends with a gradient."""

        def end(*_: object) -> None:
            now_s = self._timeline.now_s()
            self._timeline.span(self._name, f"backward {name}", self._since_s, now_s)
            self._since_s = now_s

        handle: RemovableHandle = param.register_post_accumulate_grad_hook(end)
        return handle


def _remove(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
