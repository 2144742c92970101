"""Talks to the store for one trainer: key names, first values, sums over replicas and workers.

A thin shell under :class:`~bireme.train.worker_update.WorkerUpdate` and
:class:`~bireme.train.store_update.StoreUpdate`. What to send is decided in
:mod:`bireme.train.gradients`.
"""

import contextlib
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.kvstore.base import Key, KVStore, KVStoreBase
from bireme.train.gradients import Gathered, gather
from bireme.train.lineup import Lineup
from bireme.train.shares import shares

if TYPE_CHECKING:
    from bireme.train.mode import Rider

__all__ = ("Exchange",)

_MOST_TRAINERS = 1024


class Exchange:
    """One trainer's part of a store.

    Keys are ``trainer0/<parameter name>``; the second trainer on a store is ``trainer1``, and so
    on in the order of construction, which must be the same on every worker.

    Args:
        lineup: The replicas.
        store: The store, which other trainers may use too.

    Raises:
        ConfigError: The store already has integer keys.
        StateError: The store is closed.
    """

    def __init__(self, lineup: Lineup, store: KVStoreBase) -> None:
        self.lineup = lineup
        self.store = store
        self.rider: Rider | None = None
        """What workers tell each other along with their sample counts."""
        self._told: set[int] | None = None
        """Where any worker has a gradient, if that was told along with the sample counts."""
        self._known: set[str] = set()
        self.number = _claim(store)

    def expect_sums(self) -> None:
        """Refuse a store that does anything else with a push than keep its sum.

        Raises:
            ConfigError: The store runs an optimizer or an updater.
        """
        store = self.store
        if isinstance(store, KVStore) and store.runs_updates:
            raise ConfigError(
                f"this {store.type!r} store runs an optimizer or an updater, so it does not hand "
                f"gradients back; give the trainer a store of its own, or update_on_kvstore=True"
            )

    def key(self, index: int) -> str:
        """Return the key under which the store keeps parameter ``index``."""
        return self._key(self.lineup.names[index])

    def introduce(self) -> None:
        """Give every worker rank 0's weights, where a store may span several."""
        if isinstance(self.store, KVStore) and self.store.num_workers == 1:
            return
        everything = range(len(self.lineup.names))
        weights = [[param.detach() for param in self.lineup.same(index)] for index in everything]
        keys: list[Key] = [self.key(index) for index in everything]
        self.store.broadcast(keys, [each[0] for each in weights], weights)
        self._known.update(self.key(index) for index in everything)

    def keys(self, positions: Sequence[int]) -> list[Key]:
        """Return the keys of dense values, with replica 0's weights as first values."""
        keys = [self.key(index) for index in positions]
        fresh = [
            (key, index)
            for key, index in zip(keys, positions, strict=True)
            if key not in self._known
        ]
        if fresh:
            first = self.lineup.params[0]
            self._init([key for key, _ in fresh], [first[index].detach() for _, index in fresh])
        return list(keys)

    def shares(
        self, counts: Sequence[float], *, ride: bool = True, computed: bool = True
    ) -> list[float]:
        """Return the weight of each replica's gradient among those of all workers.

        Args:
            counts: Samples of each replica.
            ride: Let the rider's words travel along: the worker's part of the step is computed.
            computed: The gradients are there as they will be pushed; where they are then needs no
                message of its own. The same on every worker.

        Raises:
            ConfigError: All counts are 0 on every worker.
        """
        total = sum(counts)
        self._told = None
        if self.meets_others and not ride:
            total = self._total("samples", total)
        elif self.meets_others:
            total = self._agree_on(total, self._here(counts) if computed else [])
        return shares(counts, total)

    def expected_shares(self) -> list[float]:
        """Return :meth:`shares` as they are known before anybody is asked.

        By default every replica of every worker has as many samples. With a rider each worker has
        its portion; how several replicas divide it is not known, and they get 0.
        """
        count = len(self.lineup)
        if self.rider is not None and self.meets_others:
            here, total = self.rider.expected
            return [here / total if total else 0.0] if count == 1 else [0.0] * count
        total = count * (self.store.num_workers if self.meets_others else 1)
        return shares([1.0] * count, float(total))

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Return a context for waits that are not this worker's own work."""
        return contextlib.nullcontext() if self.rider is None else self.rider.waiting()

    @property
    def meets_others(self) -> bool:
        """Whether a step of this worker counts together with one of every other worker."""
        if self.store.num_workers == 1:
            return False
        return not isinstance(self.store, KVStore) or self.store.meets_in_rounds

    def overflows(self, here: float) -> float:
        """Return how many workers see an overflow, ``here`` being 1 if this one does."""
        return self._total("overflow", here)

    def anyone(self, name: str, here: bool) -> bool:
        """Return whether ``here`` is true on any worker; every worker calls it."""
        return self._total(name, float(here)) > 0

    def _agree_on(self, count: float, here: Sequence[bool]) -> float:
        """Return the samples of all workers; all that is to be told then takes one message."""
        rider = self.rider
        words = rider.word() if rider is not None and rider.waits else []
        name = "samples" + " and words" * bool(words) + " and gradients" * bool(here)
        told = self._sum(name, torch.tensor([count, *words, *here], dtype=torch.float64)).tolist()
        if rider is not None and words:
            rider.hear(told[1 : 1 + len(words)])
        if here:
            self._told = {index for index, some in enumerate(told[1 + len(words) :]) if some}
        return float(told[0])

    def _total(self, name: str, value: float) -> float:
        return float(self._sum(name, torch.tensor([value], dtype=torch.float64)))

    def _sum(self, name: str, value: torch.Tensor) -> torch.Tensor:
        key = self._key(f"/{name}")
        if isinstance(self.store, KVStore):
            return self.store.sum_over_workers(key, value)
        if key not in self._known:
            self.store.broadcast(key, torch.zeros_like(value), torch.zeros_like(value))
            self._known.add(key)
        self.store.pushpull(key, value)
        return value

    def _here(self, weights: Sequence[float]) -> list[bool]:
        """Return for each parameter whether a replica with a weight has a gradient."""
        live = [
            params for params, weight in zip(self.lineup.params, weights, strict=True) if weight
        ]
        return [
            any(params[index].grad is not None for params in live)
            for index in range(len(self.lineup.names))
        ]

    def _present(self, weights: Sequence[float]) -> set[int]:
        """Return where any worker has a gradient; one that has none must push zeros there."""
        told, self._told = self._told, None
        if told is not None:
            return told
        here = torch.tensor(self._here(weights), dtype=torch.float32)
        return set(self._sum("present", here).nonzero().flatten().tolist())

    def merge(self, positions: Iterable[int], weights: Sequence[float]) -> None:
        """Leave the weighted sum of the gradients in every replica's ``.grad``.

        Raises:
            UnsupportedError: There are sparse gradients and the store sums only dense ones.
            StateError: The store is closed, or a parameter is frozen on some replicas only.
        """
        found = self.gather(positions, weights)
        if found.dense:
            keys = self.keys(found.dense_positions)
            found.scale_()
            try:
                self.store.pushpull(keys, found.dense)
            except BaseException:
                found.unscale_()
                raise
        if found.rows:
            self._merge_rows(found)

    def gather(self, positions: Iterable[int], weights: Sequence[float]) -> Gathered:
        """Return the gradients at ``positions``.

        Raises:
            UnsupportedError: There are sparse gradients and the store sums only dense ones.
            StateError: A parameter is frozen on some replicas only.
        """
        found = gather(self.lineup, positions, weights, self._elsewhere(weights))
        if found.rows and not isinstance(self.store, KVStore):
            name = self.lineup.names[found.rows_positions[0]]
            raise UnsupportedError(
                f"parameter {name!r} has sparse gradients, which a {self.store.type!r} store "
                f"does not sum; use kvstore='device', or an embedding with sparse=False"
            )
        return found

    def skip_round(self, positions: Sequence[int]) -> None:
        """Let no other worker wait for a step that this one skips by itself."""
        store = self.store
        if isinstance(store, KVStore) and not self.meets_others and store.num_workers > 1:
            first = self.lineup.params[0]
            store.skip_round(self.keys([i for i in positions if first[i].requires_grad]))

    def _elsewhere(self, weights: Sequence[float]) -> Container[int]:
        """Return where this worker pushes even without a gradient."""
        store = self.store
        if self.meets_others:
            return self._present(weights)
        if store.num_workers == 1 or not isinstance(store, KVStore) or store.staleness is None:
            return ()
        # The others count this worker's pushes of every key: one left out would hold them up.
        first = self.lineup.params[0]
        return {index for index, param in enumerate(first) if param.requires_grad}

    def _merge_rows(self, found: Gathered) -> None:
        store = self.store
        assert isinstance(store, KVStore)
        keys = [f"{self.key(index)}/rows" for index in found.rows_positions]
        fresh = [
            (key, grads[0])
            for key, grads in zip(keys, found.rows, strict=True)
            if key not in self._known
        ]
        if fresh:
            self._init([key for key, _ in fresh], [grad for _, grad in fresh])
        store.push(list(keys), found.rows)
        merged = store.pull(list(keys))
        assert isinstance(merged, list)
        for index, total in zip(found.rows_positions, merged, strict=True):
            for param in self.lineup.same(index):
                param.grad = total.to(param.device, copy=True)

    def _init(self, keys: Sequence[str], values: Sequence[torch.Tensor]) -> None:
        # A store that is no KVStore was given all its keys by introduce().
        assert isinstance(self.store, KVStore)
        self.store.init(list(keys), list(values))
        self._known.update(keys)

    def _key(self, name: str) -> str:
        return f"trainer{self.number}/{name}"


def _claim(store: KVStoreBase) -> int:
    for number in range(_MOST_TRAINERS):
        cell = torch.zeros(1, 1)
        try:
            store.broadcast(f"trainer{number}", cell, torch.zeros_like(cell))
        except StateError as error:
            refusal = error
            continue
        except ConfigError as error:
            raise ConfigError(
                f"this {store.type!r} store already has integer keys, and a trainer uses string "
                f"keys; give the trainer a store of its own"
            ) from error
        return number
    raise refusal
