"""Measures this worker's part of each step and tells the others: for shares by speed.

:meth:`bireme.Trainer.balance` connects a sampler. Times travel with the sample counts that
workers agree on in every step anyway (:class:`bireme.train.exchange.Exchange`), and
:class:`bireme.data.BalancedBatchSampler` draws the conclusions.
"""

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

import torch

from bireme.data.balanced import BalancedBatchSampler
from bireme.errors import ConfigError
from bireme.kvstore.base import KVStore, KVStoreBase

__all__ = ("Balancing", "connect")


class Balancing:
    """Times one trainer's steps. A :class:`~bireme.train.mode.Rider`.

    A worker's own time is that from the end of one step of the trainer to the beginning of the
    next: fetching a batch, forward and backward. What it waits for others within the step does
    not count, and neither does what a script does before it begins a pass over the data.

    Args:
        sampler: Whose steps these are.
        devices: Devices to wait for before the time is read.
        clock: Returns seconds, as ``time.perf_counter``.
    """

    def __init__(
        self,
        sampler: BalancedBatchSampler,
        devices: Sequence[torch.device] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._sampler, self._clock = sampler, clock
        self._devices = [device for device in devices if device.type == "cuda"]
        self._told, self._excluded_s = False, 0.0
        self._seconds: float | None = None
        self._since_s = clock()

    @property
    def sampler(self) -> BalancedBatchSampler:
        """Whose steps these are."""
        return self._sampler

    @property
    def waits(self) -> bool:
        """Whether this step's time is still to be told."""
        return not self._told

    @property
    def expected(self) -> tuple[float, float]:
        """The samples of this worker and of all in the step that comes now; 0 if not known."""
        return self._sampler.expected

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Do not count what happens inside: it is not this worker's own work."""
        start_s = self._clock()
        try:
            yield
        finally:
            self._excluded_s += self._clock() - start_s

    def stop(self) -> None:
        """Read this step's time; what follows in it does not count."""
        if self._seconds is None:
            for device in self._devices:
                torch.cuda.synchronize(device)
            start_s = max(self._since_s, self._sampler.begun_s)
            self._seconds = max(0.0, self._clock() - start_s - self._excluded_s)

    def word(self) -> list[float]:
        """Return what this worker tells with its step."""
        self.stop()
        assert self._seconds is not None
        return self._sampler.word(self._seconds)

    def hear(self, total: Sequence[float]) -> None:
        """Take in what all told."""
        self._told = True
        self._sampler.take(total)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Count what happens inside as one step, unless it fails before workers met in it."""
        try:
            yield
        except BaseException:
            if self._told:
                self._begin()
            raise
        if not self._told:
            self._sampler.skip()
        self._begin()

    def _begin(self) -> None:
        self._told, self._seconds, self._excluded_s = False, None, 0.0
        self._since_s = self._clock()


def connect(
    sampler: BalancedBatchSampler, store: KVStoreBase | None, devices: Sequence[torch.device]
) -> Balancing:
    """Return what times the steps of ``sampler``, once all workers agree about it.

    Raises:
        ConfigError: The sampler is none, or was made for other workers than the store's or with
            other settings than theirs; or the store has no rounds.
    """
    if not isinstance(sampler, BalancedBatchSampler):
        raise ConfigError(
            f"a trainer balances a bireme.data.BalancedBatchSampler, got {sampler!r:.80}"
        )
    rank, num_workers = (0, 1) if store is None else (store.rank, store.num_workers)
    if isinstance(store, KVStore) and num_workers > 1 and not store.meets_in_rounds:
        raise ConfigError(
            f"workers of a {store.type!r} store do not wait for each other, so they share no "
            "batches; give each its own part of the data, as ShardSampler does, or use 'dist_sync'"
        )
    if (sampler.part_index, sampler.num_parts) != (rank, num_workers):
        raise ConfigError(
            f"the sampler deals to part {sampler.part_index} of {sampler.num_parts}, but this is "
            f"worker {rank} of {num_workers}; make it with num_parts=store.num_workers and "
            "part_index=store.rank"
        )
    settings = sampler.connect()
    if isinstance(store, KVStore) and num_workers > 1:
        _compare(settings, store)
    return Balancing(sampler, devices)


def _compare(settings: str, store: KVStore) -> None:
    """Refuse samplers that differ.

    Raises:
        ConfigError: Another worker's settings differ; the same on every worker.
    """
    sent = torch.zeros(store.num_workers, 2, dtype=torch.float64)
    sent[store.rank] = torch.tensor([1.0, zlib.crc32(settings.encode())], dtype=torch.float64)
    told = store.sum_over_workers("settings of shares", sent).tolist()
    digests = {
        rank: round(digest / present) for rank, (present, digest) in enumerate(told) if present
    }
    if len(set(digests.values())) > 1:
        raise ConfigError(
            f"the workers' samplers differ; here it has {settings}, and their checksums by rank "
            f"are {digests}; give all the same arguments but part_index"
        )
