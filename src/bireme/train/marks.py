"""Remembers which gradients are merged already, until something adds to them.

:meth:`bireme.Trainer.allreduce_grads` followed by a step must not merge twice: the caller may
have clipped the merged gradients in between. A backward pass in between must merge again.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence

import torch
from torch.utils.hooks import RemovableHandle

from bireme.train.lineup import Lineup

__all__ = ("Marks",)


class Marks:
    """Merged gradients by position.

    A mark holds while replica 0's ``.grad`` is the same tensor and no backward pass has reached
    the parameter in any replica. Parameters are watched from their first mark on, so a script
    that never merges by hand pays nothing.

    Args:
        lineup: The replicas.
    """

    def __init__(self, lineup: Lineup) -> None:
        self._lineup = lineup
        self._marked: dict[int, tuple[torch.Tensor, int]] = {}
        self._handles: dict[int, RemovableHandle] = {}
        weakref.finalize(self, _remove, self._handles)

    def add(self, positions: Iterable[int]) -> None:
        """Mark the gradients at ``positions`` as merged."""
        for index in positions:
            grad = self._lineup.params[0][index].grad
            if grad is not None:
                self._marked[index] = (grad, grad._version)
                for param in self._lineup.same(index):
                    self._watch(index, param)

    def clear(self) -> None:
        """Take every gradient for unmerged."""
        self._marked.clear()

    def without(self, positions: Sequence[int]) -> Sequence[int]:
        """Return those of ``positions`` that are not marked."""
        if not self._marked:
            return positions
        return [index for index in positions if not self._is_marked(index)]

    def any(self, positions: Iterable[int]) -> bool:
        """Return whether one of ``positions`` is marked."""
        return bool(self._marked) and any(self._is_marked(index) for index in positions)

    def any_changed(self, positions: Iterable[int]) -> bool:
        """Return whether a marked gradient was changed in place since."""
        return any(
            self._is_marked(index) and self._marked[index][0]._version != self._marked[index][1]
            for index in positions
        )

    def _grad(self, index: int) -> torch.Tensor | None:
        return self._lineup.params[0][index].grad

    def _is_marked(self, index: int) -> bool:
        mark = self._marked.get(index)
        return mark is not None and mark[0] is self._grad(index)

    def _watch(self, index: int, param: torch.nn.Parameter) -> None:
        if id(param) in self._handles or not param.requires_grad:
            return
        marked = self._marked

        def forget(_: torch.Tensor) -> None:
            marked.pop(index, None)

        watch: Callable[..., RemovableHandle] = param.register_post_accumulate_grad_hook
        self._handles[id(param)] = watch(forget)


def _remove(handles: dict[int, RemovableHandle]) -> None:
    for handle in handles.values():
        handle.remove()
