"""A part of the model that workers exchange as one between their local steps.

:class:`bireme.train.local_update.LocalUpdate` says when; here is what happens to the tensors.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from bireme.consistency.local import LocalSteps, Outer
from bireme.errors import ConfigError
from bireme.kvstore.base import KVStore
from bireme.train.exchange import Exchange

if TYPE_CHECKING:
    from bireme.kvstore.pending import Pending

__all__ = ("Fragment",)


class Fragment:
    """Some parameters, what the servers were last known to hold of them, and an exchange.

    Args:
        exchange: The trainer's part of the store.
        steps: How exchanges work.

    Guarantees:
        Between exchanges it holds one more copy of its parameters; during one, three more.
    """

    def __init__(self, exchange: Exchange, steps: LocalSteps) -> None:
        store = exchange.store
        assert isinstance(store, KVStore)
        self._store = store
        self._exchange = exchange
        self._lineup = exchange.lineup
        self._steps = steps
        self.positions: list[int] = []
        self.samples = 0.0
        """Samples since the last exchange began."""
        self._anchors: list[torch.Tensor] = []
        self._pending: Pending | None = None
        self._sent: list[torch.Tensor] = []
        self._arrivals: list[torch.Tensor] = []
        self.due: int | None = None
        """The step after which what is under way is to arrive."""

    @property
    def size(self) -> int:
        """Elements."""
        return sum(each.numel() for each in self._anchors)

    def take_in(self, positions: Sequence[int]) -> None:
        """Add parameters; they start from what the servers hold."""
        if not positions:
            return
        first = self._lineup.params[0]
        fresh = [torch.empty_like(first[index].detach()) for index in positions]
        self._store.pull(self._exchange.keys(positions), fresh)
        self.positions += positions
        self._anchors += fresh

    @torch.no_grad()
    def leave(self, due: int) -> None:
        """Begin an exchange of what has changed here since the last one.

        Args:
            due: The step after which it is to arrive.
        """
        self._send(self.samples)
        self.samples, self.due = 0.0, due

    @torch.no_grad()
    def arrive(self) -> None:
        """End the exchange, and take up its result."""
        self._wait()
        params = self._params()
        if params and self._steps.outer is not Outer.ELASTIC:
            kept = self._steps.kept
            if kept:
                torch._foreach_mul_(params, kept)
                torch._foreach_add_(params, self._arrivals, alpha=1.0 - kept)
            else:
                torch._foreach_copy_(params, self._arrivals)
            self._lineup.follow_first(self.positions)
        self._anchors, self._arrivals, self.due = self._arrivals, [], None

    @torch.no_grad()
    def settle(self) -> None:
        """Exchange now, and take exactly what the servers have afterwards."""
        if self.due is not None:
            self.arrive()
        if not self.positions:
            return
        if self._store.meets_in_rounds or self.samples:
            self._send(self.samples)
            self._wait()
        self.samples, self._arrivals = 0.0, []
        if not self._store.meets_in_rounds:
            self._store.barrier()
        self._store.pull(self._exchange.keys(self.positions), self._anchors)
        torch._foreach_copy_(self._params(), self._anchors)
        self._lineup.follow_first(self.positions)

    def state(self) -> dict[str, Any]:
        """Return copies of all that :meth:`load` needs; waits for what is under way."""
        self._wait()
        names = self._lineup.names
        return {
            "names": [names[index] for index in self.positions],
            "samples": self.samples,
            "due": self.due,
            "anchors": [each.clone() for each in self._anchors],
            "arrivals": [each.clone() for each in self._arrivals],
        }

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuse a state of other parameters.

        Raises:
            ConfigError: It is one.
        """
        names = [self._lineup.names[index] for index in self.positions]
        shapes = [each.shape for each in self._anchors]
        anchors, arrivals = state["anchors"], state["arrivals"]
        if (
            state["names"] != names
            or [each.shape for each in anchors] != shapes
            or (arrivals and [each.shape for each in arrivals] != shapes)
            or bool(arrivals) is (state["due"] is None)
        ):
            raise ConfigError(
                "the state of the local steps is of other parameters or of another number of "
                "fragments; make the trainer as it was made when the state was saved"
            )

    def load(self, state: Mapping[str, Any]) -> list[torch.Tensor]:
        """Go on from a checked state; return what the servers held then."""
        self._wait()
        params = self._params()
        self.samples, self.due = float(state["samples"]), state["due"]
        self._anchors = [_like(each, p) for each, p in zip(state["anchors"], params, strict=True)]
        self._arrivals = [
            _like(each, param) for each, param in zip(state["arrivals"], params, strict=False)
        ]
        return self._arrivals or self._anchors

    def _send(self, weight: float) -> None:
        if not self.positions:
            return
        keys, params = self._exchange.keys(self.positions), self._params()
        elastic = self._steps.outer is Outer.ELASTIC
        if elastic and not self._store.meets_in_rounds:
            # Others may have moved the centre since, and each pull is to be by its present place.
            self._store.pull(keys, self._anchors)
        self._sent = torch._foreach_sub(self._anchors, params)  # type: ignore[assignment]
        if elastic:
            pull = self._steps.pull(self._store.num_workers)
            torch._foreach_add_(params, self._sent, alpha=pull)
            self._lineup.follow_first(self.positions)
        self._arrivals = [torch.empty_like(each) for each in self._anchors]
        self._pending = self._store.average_async(keys, self._sent, self._arrivals, weight)

    def _wait(self) -> None:
        if self._pending is not None:
            self._pending.wait()
            self._pending, self._sent = None, []

    def _params(self) -> list[torch.Tensor]:
        first = self._lineup.params[0]
        return [first[index].detach() for index in self.positions]


def _like(saved: torch.Tensor, param: torch.Tensor) -> torch.Tensor:
    return saved.to(param.device, param.dtype, copy=True)
