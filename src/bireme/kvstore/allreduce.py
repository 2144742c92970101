"""The ``allreduce`` store: every worker holds all values, and pushes are summed over workers."""

from collections.abc import Mapping, Sequence

import torch

from bireme.collective.base import Collectives
from bireme.compress.base import Compressor
from bireme.compress.factory import create
from bireme.kvstore import calls
from bireme.kvstore.base import Key, Values
from bireme.kvstore.calls import Push
from bireme.kvstore.device import DeviceStore
from bireme.kvstore.entry import Entry
from bireme.kvstore.pending import Pending
from bireme.kvstore.reduce.base import Sum
from bireme.kvstore.reduce.exchanges import CastExchange, Exchange, PlainExchange
from bireme.kvstore.reduce.rows import sum_rows
from bireme.kvstore.reduce.workers import WorkersReducer, gather_rows
from bireme.types.topology import ReduceOp

__all__ = ("AllreduceStore",)


class AllreduceStore(DeviceStore):
    """Sums over the devices of each worker, then over the workers, by collectives.

    There are no servers: each worker applies the same sum to its own copy of a value, by an
    updater or optimizer if there is one, so the copies stay equal. A push returns when every
    worker has pushed; workers may push in any order.

    Args:
        name: What :attr:`type` says: ``allreduce`` or ``horovod``.
        collectives: What connects the workers; not closed with the store.
        number: Tells the stores of a job from each other; alike on all workers.

    Guarantees:
        Those of `KVStore`; every worker's copy has the same bits. When a worker is gone, calls
        raise `RankLost`.

    Source:
        MXNet 1.9 ``python/mxnet/kvstore/horovod.py`` (broadcast, pushpull); the other verbs are
        those of every store.
    """

    def __init__(self, name: str, collectives: Collectives, number: int) -> None:
        super().__init__(name)
        self._collectives = collectives
        self._prefix = f"kvstore{number}."
        self._exchange: Exchange = PlainExchange(collectives, self._prefix)
        self._adder = WorkersReducer(self._copier, self._exchange)
        self._begun: dict[Key, Pending] = {}

    @property
    def rank(self) -> int:
        """This worker's number."""
        return self._collectives.topology.rank

    @property
    def num_workers(self) -> int:
        """How many workers there are."""
        return self._collectives.topology.size

    @property
    def spans_processes(self) -> bool:
        """Whether there are other workers."""
        return self.num_workers > 1

    @property
    def updates_elsewhere(self) -> bool:
        """Never: the store's copy of a value is in this process."""
        return False

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """Give ``key`` its first value: rank 0's; every worker calls it."""
        super().init(key, value)
        _, _, entries = self._found(key)
        self._take_over(entries)

    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Values, priority: int = 0
    ) -> None:
        """Initialise ``key`` with rank 0's ``value`` and write it into every ``out``."""
        super().broadcast(key, value, out, priority)
        _, _, entries = self._found(key)
        self._take_over(entries)
        self.pull(key, out, priority)

    def overwrite(self, key: Key | Sequence[Key], value: Values) -> None:
        """Replace stored values by rank 0's, without any rule; every worker calls it."""
        super().overwrite(key, value)
        _, _, entries = self._found(key)
        self._take_over(entries)

    def pushpull_async(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values | None = None,
        priority: int = 0,
    ) -> Pending:
        """Begin a :meth:`pushpull` and return at once; see `KVStore.pushpull_async`.

        It runs in the background where the store only adds up dense values.
        """
        calls.checked_priority(priority)
        keys, is_list, entries = self._found(key)
        pushes = calls.pushes(entries, keys, is_list, value)
        pulls = calls.pulls(entries, keys, is_list, value if out is None else out)
        if self._rule is not None or any(push.row_sparse for push in pushes):
            self.pushpull(key, value, out, priority)
            return Pending()
        for push in pushes:
            self._adder.check(push.entry.key, push.values)
        for entry in entries:
            earlier = self._begun.pop(entry.key, None)
            if earlier is not None:
                earlier.wait()
        with self._holding.keys(entries):
            self._settle(pushes)
            sums = {push.entry.key: self._local_sum(push) for push in pushes}
            begun = [self._exchange.begin(key, total) for key, total in sums.items()]

        def finish() -> None:
            for each in begun:
                each.wait()
            with self._holding.keys(entries):
                jobs = [
                    Sum(pull.entry.key, [sums[pull.entry.key]], [pull.entry.value, *pull.outs])
                    for pull in pulls
                ]
                self._copier.run(jobs)

        pending = Pending(finish, lambda: all(each.done for each in begun))
        self._begun |= {entry.key: pending for entry in entries}
        return pending

    def sum_over_workers(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return the sum of every worker's ``value``."""
        self._holding.refuse_closed()
        handle = self._collectives.allreduce(
            [value.detach().resolve_neg().contiguous()],
            names=[f"{self._prefix}sum.{name}"],
            op=ReduceOp.SUM,
        )
        (total,) = handle.wait()
        result: torch.Tensor = total
        return result

    def set_gradient_compression(
        self, compression: Mapping[str, object] | Compressor | None
    ) -> None:
        """Send sums in 16 bits from now on; ``None`` sends them as they are again.

        Only what travels between workers is cast: a worker's devices are added in full precision.
        Values given to ``init`` and row-sparse values are never cast. Every worker calls this
        alike, and finishes what it has begun before.

        Raises:
            ConfigError: ``compression`` describes no compressor.
            UnsupportedError: Neither fp16 nor bf16; other codes cannot be added up on their way.
        """
        self._holding.refuse_closed()
        compressor = create(compression)
        exchange: Exchange = PlainExchange(self._collectives, self._prefix)
        if compressor is not None:
            exchange = CastExchange(self._collectives, self._prefix, compressor, self.type)
        with self._holding.everything():
            self._exchange = exchange
            self._adder = WorkersReducer(self._copier, exchange)

    def barrier(self) -> None:
        """Return when every worker has called it."""
        self._holding.refuse_closed()
        self._collectives.barrier().wait()

    def wait_all(self) -> None:
        """Return when everything that was begun is done."""
        while self._begun:
            self._begun.popitem()[1].wait()
        super().wait_all()

    def _take_over(self, entries: Sequence[Entry]) -> None:
        """Replace values by rank 0's."""
        with self._holding.keys(entries):
            handles = []
            for entry in entries:
                name = f"{self._prefix}first.{entry.key}"
                if entry.layout.row_sparse:
                    entry.value = gather_rows(self._collectives, name, entry.value, root=0)
                    continue
                value = entry.value.contiguous()
                handle = self._collectives.broadcast(value, 0, name=name, out=value)
                handles.append((entry, value, handle))
            for entry, value, handle in handles:
                handle.wait()
                entry.value.copy_(value)

    def _local_sum(self, push: Push[Entry]) -> torch.Tensor:
        """Return the sum over this worker's devices, in memory of its own."""
        value = push.entry.value
        total = torch.empty(value.shape, dtype=value.dtype, device=value.device)
        self._copier.run([Sum(push.entry.key, push.values, [total])])
        return total

    def _total_rows(self, push: Push[Entry]) -> torch.Tensor:
        rows = sum_rows(push.values, push.entry.value.device)
        return gather_rows(self._collectives, f"{self._prefix}rows.{push.entry.key}", rows)
