"""Lets gradients leave while the backward pass runs, and results arrive during the next forward.

A gradient leaves when it is accumulated on every replica: small ones together, in the order in
which they are ready; the slices of what the next forward needs first overtake the others. What
comes back waits in memory of its own until a gate (:mod:`bireme.train.gates`) or the trainer asks
for it. Owned by :class:`~bireme.train.overlapped_store.OverlappedStoreUpdate` and
:class:`~bireme.train.overlapped_worker.OverlappedWorkerUpdate`.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from bireme.errors import ConfigError, StateError
from bireme.kvstore.base import KVStore
from bireme.train.amp import is_finite
from bireme.train.arrivals import Arrivals, Deliver
from bireme.train.exchange import Exchange
from bireme.train.gates import Gates
from bireme.train.tracing import timed

__all__ = ("Overlap",)

_BUNDLE_BYTES = 1 << 20
"""Small gradients wait for each other up to here."""

_ALONE_BYTES = 256 << 10
"""From here on a gradient waits for no other."""

_HOLD = (
    "wrap the backward pass in `with trainer.accumulate():`, or make the trainer without overlap"
)


class Overlap:
    """The gradients of one step that have left, and the results that are on their way.

    Args:
        exchange: The trainer's part of a store.
        deliver: Takes a result.
        prepare: Called before the first gradient of a step leaves, in every worker.
        waits_at_gates: Whether results are parameters, which the modules wait for.
        refuse_infinite: Let no gradient leave that is not finite: a compressor would keep it.

    Guarantees:
        What is pushed for a parameter in a step is what a step without overlap pushes, bit for
        bit; otherwise an error says why that is not possible.
    """

    def __init__(
        self,
        exchange: Exchange,
        deliver: Deliver,
        prepare: Callable[[], None],
        *,
        waits_at_gates: bool,
        refuse_infinite: bool = False,
    ) -> None:
        store = exchange.store
        assert isinstance(store, KVStore)
        self._store = store
        self._exchange = exchange
        self._lineup = exchange.lineup
        self._prepare = prepare
        self._lock = threading.RLock()
        self.arrivals = Arrivals(self._lineup, deliver, watched=waits_at_gates)
        self._gates = Gates(self._lineup, self._wanted)
        self._waits_at_gates = waits_at_gates
        self._refuse_infinite = refuse_infinite
        self._held = 0
        self._is_open = False
        self._weights = exchange.expected_shares()
        self._begun: list[float] | None = None
        self._left: dict[int, list[tuple[torch.Tensor, int]]] = {}
        self._ready: dict[int, set[int]] = {}
        self._bundle: list[int] = []
        self._bundle_bytes = 0
        self._memory: dict[int, list[torch.Tensor]] = {}
        self._handles: dict[int, list[RemovableHandle]] = {}
        weakref.finalize(self, _remove, self._handles)

    # What the script does.

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Let no gradient leave: more is to be added, or it is to be changed."""
        with self._lock:
            self._held += 1
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1

    def begin(self, counts: Sequence[float]) -> None:
        """Take the samples of the step whose backward comes next.

        Raises:
            StateError: Gradients of this step have left already.
        """
        if self._left or self._begun is not None:
            raise StateError("this step has begun already; call begin() once, before the backward")
        with self._exchange.waiting():
            self._weights = self._exchange.shares(counts, ride=False)
        self._begun = list(counts)

    def shares(self, counts: Sequence[float], *, computed: bool = True) -> list[float]:
        """Return the weights of this step, of ``counts`` or of :meth:`begin`.

        Args:
            counts: Samples of each replica.
            computed: As of :meth:`Exchange.shares`.

        Raises:
            ConfigError: They differ.
            StateError: Gradients have left under other weights.
        """
        if self._begun is not None:
            if list(counts) != self._begun:
                raise ConfigError(
                    f"step() was given num_samples {list(counts)}, but begin() {self._begun}"
                )
            if self._exchange.rider is not None:
                self._exchange.shares(counts, computed=computed)
            return self._weights
        planned = self._is_planned(counts)
        weights = self._exchange.shares(counts, computed=computed)
        if self._left and planned:
            # They differ only where a worker has just died, by whose plan gradients have left.
            return self._weights
        if self._left and weights != self._weights:
            raise StateError(
                f"gradients have left with equal weights {self._weights}, but by num_samples the "
                f"weights are {weights}; with overlap=True call trainer.begin(num_samples) before "
                "the backward pass"
            )
        return weights

    def refuse_left(self, what: str) -> None:
        """Refuse something that needs all gradients to be here.

        Raises:
            StateError: Some have left.
        """
        if self._left:
            raise StateError(
                f"{what}, but {len(self._left)} gradients have left during the backward pass "
                f"(overlap=True); {_HOLD}"
            )

    def synchronize(self) -> None:
        """Wait for every result that is due and deliver it."""
        self._land()

    def close(self) -> None:
        """Deliver what is due, and remove every hook."""
        try:
            self.synchronize()
        finally:
            self._gates.close()
            _remove(self._handles)

    # What a mode does.

    def watch(self, positions: Sequence[int]) -> None:
        """Let the gradients at ``positions`` leave early, and no others."""
        for index in set(self._handles) - set(positions):
            for handle in self._handles.pop(index):
                handle.remove()
        this = weakref.ref(self)
        for index in set(positions) - set(self._handles):
            self._handles[index] = [
                _hookable(param).register_post_accumulate_grad_hook(_Watch(this, replica, index))
                for replica, param in enumerate(self._lineup.same(index))
                if param.requires_grad
            ]

    def accumulated(self, replica: int, index: int) -> None:
        """Note that a gradient is complete on one replica; called by its hook.

        Raises:
            StateError: The gradient was computed with an old value, or for the second time.
        """
        name = self._lineup.names[index]
        if self._waits_at_gates and self.arrivals.is_due(index):
            raise StateError(
                f"parameter {name!r} was used before its new value had come in, outside of the "
                "forward of the module that owns it; call trainer.synchronize() before that"
            )
        with self._lock:
            if index in self._left or replica in self._ready.get(index, ()):
                if self._held and index not in self._left:
                    return
                raise StateError(
                    f"the gradient of {name!r} was added to after it had left; to add up several "
                    "backward passes, wrap all but the last in `with trainer.accumulate():`, and "
                    "call step() after each last one"
                )
            if self._held:
                return
            if self._exchange.rider is not None and not self._left and self._begun is None:
                self._weights = self._exchange.expected_shares()
            if not self._may_leave(index, replica):
                return
            ready = self._ready.setdefault(index, set())
            ready.add(replica)
            if len(ready) == len(self._lineup):
                self._open()
                self._leave(index)

    def seal(self) -> set[int]:
        """Send what waits in a bundle; return the positions whose gradients have left.

        Raises:
            StateError: A gradient was changed after it had left.
        """
        with self._lock:
            for index, seen in self._left.items():
                for param, (grad, version) in zip(self._lineup.same(index), seen, strict=True):
                    if param.grad is not grad or grad._version != version:
                        raise StateError(
                            f"the gradient of {self._lineup.names[index]!r} was changed after it "
                            f"had left (clipped, unscaled or cleared?); {_HOLD}"
                        )
            self._send_bundle()
            return set(self._left)

    def send(self, positions: Iterable[int], weights: Sequence[float]) -> None:
        """Send the gradients at ``positions``, the most urgent first."""
        with self._lock:
            self._weights = list(weights)
            for index in sorted(positions, key=self._gates.priority, reverse=True):
                self._leave(index)
            self._send_bundle()

    def release(self) -> None:
        """End the step: what is on its way is due from now on."""
        with self._lock:
            self._left.clear()
            self._ready.clear()
            self._is_open = False
            self._begun = None
            self._weights = self._exchange.expected_shares()
            self.arrivals.release()
        if self._waits_at_gates:
            self.arrivals.land(self._gates.without())

    def _wanted(self, positions: Iterable[int] | None) -> None:
        if self.arrivals.any_due:
            self._land(positions)

    def _land(self, positions: Iterable[int] | None = None) -> None:
        with self._exchange.waiting():
            timed(self._store.timeline, "wait", lambda: self.arrivals.land(positions))

    def _may_leave(self, index: int, replica: int) -> bool:
        grad = self._lineup.params[replica][index].grad
        return grad is not None and grad.layout is torch.strided and all(self._weights)

    def _is_planned(self, counts: Sequence[float]) -> bool:
        rider = self._exchange.rider
        return rider is not None and list(counts) == [rider.expected[0]]

    def _open(self) -> None:
        if not self._is_open:
            self._prepare()
            self._is_open = True

    @torch.no_grad()
    def _leave(self, index: int) -> None:
        self._land([index])
        params = self._lineup.same(index)
        if self._refuse_infinite and not is_finite(
            each.grad for each in params if each.grad is not None
        ):
            raise StateError(
                f"the gradient of {self._lineup.names[index]!r} is not finite, and a compressor "
                f"would carry that into every later step; to skip such steps, {_HOLD}"
            )
        memory = self._memory.get(index)
        if memory is None:
            memory = self._memory[index] = [
                torch.empty(param.shape, dtype=param.dtype, device=param.device) for param in params
            ]
        seen = []
        for param, target, weight in zip(params, memory, self._weights, strict=True):
            grad = param.grad
            assert grad is not None
            if weight in (0.0, 1.0):
                target.copy_(grad)
            else:
                torch.mul(grad, weight, out=target)
            seen.append((grad, grad._version))
        self._left[index] = seen
        size_bytes = memory[0].nbytes
        if size_bytes >= _ALONE_BYTES:
            self._send([index])
            return
        self._bundle.append(index)
        self._bundle_bytes += size_bytes
        if self._bundle_bytes >= _BUNDLE_BYTES:
            self._send_bundle()

    def _send_bundle(self) -> None:
        bundle, self._bundle, self._bundle_bytes = self._bundle, [], 0
        if bundle:
            self._send(bundle)

    def _send(self, positions: list[int]) -> None:
        results = {index: self._memory[index][0] for index in positions}
        pending = self._store.pushpull_async(
            self._exchange.keys(positions),
            [self._memory[index] for index in positions],
            [[result] for result in results.values()],
            max(map(self._gates.priority, positions)),
        )
        self.arrivals.add(pending, results)


class _Watch:
    """A hook of one parameter."""

    __slots__ = ("_index", "_overlap", "_replica")

    def __init__(self, overlap: "weakref.ref[Overlap]", replica: int, index: int) -> None:
        self._overlap = overlap
        self._replica = replica
        self._index = index

    def __call__(self, _: torch.Tensor) -> None:
        overlap = self._overlap()
        if overlap is not None:
            overlap.accumulated(self._replica, self._index)


def _hookable(param: torch.Tensor) -> Any:
    # torch annotates the method without types.
    return param


def _remove(handles: dict[int, list[RemovableHandle]]) -> None:
    while handles:
        for handle in handles.popitem()[1]:
            handle.remove()
