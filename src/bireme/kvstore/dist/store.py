"""The stores that span processes: ``dist_sync``, ``dist_async``, ``dist_bounded`` and so on."""

import os
from collections.abc import Callable, Mapping, Sequence

import torch

from bireme.compress.base import Compressor
from bireme.compress.factory import create as create_compressor
from bireme.consistency.local import LocalSteps
from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.kvstore import calls
from bireme.kvstore.base import Key, KVStore, Updater, Values
from bireme.kvstore.dist.agreement import Agreement
from bireme.kvstore.dist.directory import Directory
from bireme.kvstore.dist.entry import DistEntry
from bireme.kvstore.dist.options import DistOptions
from bireme.kvstore.dist.preparing import Preparer, outs_of, receipts_of
from bireme.kvstore.dist.routine import Routines
from bireme.kvstore.dist.rows import as_rows, pull_rows
from bireme.kvstore.dist.sending import Sender
from bireme.kvstore.dist.server_optimizer import ServerOptimizer
from bireme.kvstore.dist.tables import StoreTables
from bireme.kvstore.keys import group, to_keys
from bireme.kvstore.pending import Pending
from bireme.kvstore.reduce import Reducer
from bireme.kvstore.reduce.rows import to_dense
from bireme.kvstore.tables import Table, TableOptions
from bireme.node.worker import PushItem, WorkerClient
from bireme.observe.timeline import Timeline
from bireme.types.choices import Consistency
from bireme.types.nodes import SCHEDULER
from bireme.update import Layout, OptimizerSpec
from bireme.wire.messages import Start

__all__ = ("NUMBERS_OF_STORE", "DistStore")

NUMBERS_OF_STORE = 2
"""Store numbers that one store uses: its own, and one for agreements between its workers."""


class DistStore(KVStore):
    """A keyed store whose values live on servers, shared by all workers of a job.

    With ``sync`` consistency a push belongs to a round of its key, and the round is complete when
    every worker has pushed: a pull after it sees the sum of all (or what the optimizer made of
    it), the same bits on every worker. With ``async`` each push is applied when it arrives, which
    needs an optimizer on the servers. With ``bounded`` likewise, but a worker that is more than
    ``staleness`` rounds of a key ahead of the slowest waits; every worker pushes every key once a
    round, and ``bounded`` with staleness 0 is ``sync``.

    Args:
        name: What :attr:`type` says.
        number: Number of the store within the job, in order of creation on every worker; the next
            ``NUMBERS_OF_STORE - 1`` are the store's too.
        client: The worker's link to the job.
        start: How the job began.
        consistency: Of every key.
        bank: Sums the values of this process's devices.
        on_close: Called once after the worker has left.
        options: What the type leaves open.

    Guarantees:
        Those of :class:`~bireme.kvstore.base.KVStore`. Every wait has the job's limit, and its
        error names who is missing. ``push`` returns at once; an error of an earlier push is raised
        by the next call that waits, at the latest by :meth:`wait_all` or :meth:`close`.
    """

    def __init__(
        self,
        name: str,
        number: int,
        client: WorkerClient,
        start: Start,
        *,
        consistency: Consistency,
        bank: Reducer,
        on_close: Callable[[], None] = lambda: None,
        options: DistOptions,
    ) -> None:
        self._name = name
        self._local = options.local
        self._client = client
        self._limits = start.config
        self._num_workers = start.config.num_workers
        self._directory = Directory(client, number, consistency, start.config, options.staleness)
        self._agreement = Agreement(client, number + 1, start.config)
        self._optimizer = ServerOptimizer(
            client, self._directory, self._agreement, start.config, options.delay_compensation
        )
        self._sender = Sender(bank)
        self._preparer = Preparer(
            self._found,
            self._refuse_closed,
            self._sender,
            self._optimizer,
            Routines(start.config.bundle_bytes),
        )
        self.tables = StoreTables(self, client, self._directory, self._agreement, start.config)
        """The tables on the servers; :meth:`table` makes one."""
        self._on_close = on_close
        self._closed = False
        self._process = os.getpid()

    @property
    def type(self) -> str:
        """The lower-cased name the store was created under."""
        return self._name

    @property
    def rank(self) -> int:
        """This worker's number, in the order of launch."""
        return self._client.rank

    @property
    def num_workers(self) -> int:
        """How many workers the job was launched with."""
        return self._num_workers

    @property
    def spans_processes(self) -> bool:
        """Always: values live on servers."""
        return True

    @property
    def timeline(self) -> Timeline | None:
        """Where to record what happens when, if ``BIREME_TIMELINE`` is set."""
        return self._client.timeline

    @property
    def meets_in_rounds(self) -> bool:
        """Whether the store is synchronous."""
        return self._directory.in_rounds

    @property
    def local_steps(self) -> LocalSteps | None:
        """How often workers meet that train alone in between; ``None`` when they do not."""
        return self._local

    @property
    def staleness(self) -> int | None:
        """Rounds that a worker may be ahead of the slowest; ``None`` when there is no bound."""
        if self._directory.consistency is Consistency.ASYNC:
            return None
        return self._directory.staleness

    def sum_over_workers(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return the sum of every worker's ``value``, whatever the store does with pushes."""
        self._refuse_closed()
        if self._num_workers == 1:
            return value.clone()
        return self._agreement.sum(name, value)

    def is_capable(self, capability: str) -> bool:
        """Return whether the store has ``capability``: true of ``"optimizer"``."""
        super().is_capable(capability)
        return True

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """Give ``key`` its first value, rank 0's; other ranks only say what it looks like."""
        keys, is_list = to_keys(key)
        self._refuse_closed()
        if keys:
            self._directory.add(calls.first_values(keys, is_list, value))
            self._optimizer.refresh()

    def push(self, key: Key | Sequence[Key], value: Values, priority: int = 0) -> None:
        """Send ``value`` to the servers; returns when it has been copied."""
        priority = calls.checked_priority(priority)
        pushed = self._preparer.push(key, value, self._client.allocate)
        self._client.push(
            pushed.items,
            self._limits.push_timeout_s,
            priority=priority,
            bunches=pushed.bunches,
        )

    def pull(
        self, key: Key | Sequence[Key], out: Values | None = None, priority: int = 0
    ) -> torch.Tensor | list[torch.Tensor] | None:
        """Write the current value into every ``out``, or return a copy of it."""
        priority = calls.checked_priority(priority)
        if out is not None and self._pulled_again(key, out, priority):
            return None
        keys, is_list, entries = self._found(key)
        if out is None:
            values = {
                entry.key: torch.empty(entry.layout.shape, dtype=entry.layout.dtype)
                for entry in entries
            }
            self._pull([(entry, [values[entry.key]]) for entry in entries], priority)
            for entry in entries:
                if entry.layout.row_sparse:
                    values[entry.key] = as_rows(values[entry.key])
            return [values[each] for each in keys] if is_list else values[keys[0]]
        targets = calls.pulls(entries, keys, is_list, out)
        self._pull(outs_of(entries, targets), priority)
        return None

    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values | None = None,
        priority: int = 0,
    ) -> None:
        """Push ``value``, then write the result into ``out`` (into ``value`` when ``None``)."""
        priority = calls.checked_priority(priority)
        work = self._preparer.pushpull(key, value, out)
        self._client.pushpull(
            work.items,
            work.places,
            self._limits.pull_timeout_s,
            priority=priority,
            bunches=work.bunches,
        )
        work.finish()

    def pushpull_async(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values | None = None,
        priority: int = 0,
    ) -> Pending:
        """Begin a :meth:`pushpull`; slices of higher priority overtake others, both ways."""
        priority = calls.checked_priority(priority)
        return self._begin_pushpull(key, value, out, priority, weight=1.0, mean=False)

    def average_async(
        self, key: Key | Sequence[Key], value: Values, out: Values, weight: float
    ) -> Pending:
        """Begin a :meth:`pushpull` of the weighted mean; return at once."""
        if self.meets_in_rounds:
            return self._begin_pushpull(key, value, out, 0, weight=weight, mean=True)
        part = 1.0 / self._num_workers
        return self._begin_pushpull(key, value, out, 0, weight=part, mean=False)

    def skip_round(self, key: Key | Sequence[Key]) -> None:
        """Take part in a round of ``key`` without pushing anything, where others would wait."""
        _, _, entries = self._found(key)
        if self.meets_in_rounds or self.staleness is None:
            return
        items: list[PushItem] = []
        for entry in entries:
            nothing = torch.zeros(entry.layout.shape, dtype=entry.layout.dtype)
            items += self._sender.plain_items(entry, nothing)
        # What weighs nothing moves no optimizer, but clocks go on.
        self._client.push(items, self._limits.push_timeout_s, weight=0.0)

    def _begin_pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values | None,
        priority: int,
        *,
        weight: float,
        mean: bool,
    ) -> Pending:
        work = self._preparer.pushpull(key, value, out)
        ticket = self._client.begin_pushpull(
            work.items,
            work.places,
            self._limits.pull_timeout_s,
            weight=weight,
            mean=mean,
            priority=priority,
            bunches=work.bunches,
        )

        def finish() -> None:
            self._client.finish(ticket)
            work.finish()

        return Pending(finish, lambda: ticket.done)

    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Values, priority: int = 0
    ) -> None:
        """Initialise ``key`` with rank 0's ``value`` and write it into every ``out``."""
        calls.checked_priority(priority)
        keys, is_list = to_keys(key)
        self._refuse_closed()
        if not keys:
            return
        first = calls.first_values(keys, is_list, value)
        for each, outs in group(keys, is_list, out, "out").items():
            calls.check_outs(each, Layout.of(each, first[each]), outs)
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(
        self,
        key: Key | Sequence[Key],
        out: Values | None = None,
        row_ids: Values | None = None,
        priority: int = 0,
    ) -> torch.Tensor | list[torch.Tensor] | None:
        """Fetch only the rows ``row_ids`` of a value, as a row-sparse tensor."""
        calls.checked_priority(priority)
        if row_ids is None:
            raise ConfigError("row_sparse_pull needs row_ids; use pull for whole values")
        keys, is_list, entries = self._found(key)
        wanted = calls.row_pulls(entries, keys, is_list, out, row_ids)
        results = {}
        for entry, pull in zip(entries, wanted, strict=True):
            taken = [
                pull_rows(self._client, entry, rows, self._limits.pull_timeout_s)
                for rows in pull.rows
            ]
            results[entry.key] = pull.give(taken)
        if out is not None:
            return None
        return [results[each] for each in keys] if is_list else results[keys[0]]

    @property
    def runs_updates(self) -> bool:
        """Whether the servers run an optimizer."""
        return self._optimizer.is_set

    def set_updater(self, updater: Updater | None) -> None:
        """Refuse a function, which cannot travel to the servers; ``None`` ends ``set_optimizer``.

        Every worker calls it. The state is dropped, and a push assigns again.

        Raises:
            UnsupportedError: Unless ``updater`` is ``None``.
        """
        self._refuse_closed()
        if updater is not None and not callable(updater):
            raise ConfigError(f"an updater must be callable, got {updater!r:.60}")
        if updater is not None:
            raise UnsupportedError(
                f"a {self.type!r} store takes no updater, since no code travels to the servers; "
                "use set_optimizer, or a 'local' or 'device' store"
            )
        self._optimizer.remove()

    def set_optimizer(self, optimizer: torch.optim.Optimizer | OptimizerSpec) -> None:
        """Run ``optimizer`` on the servers; every worker calls it, the lowest rank's counts.

        The optimizer travels as a name and plain numbers: a class of ``torch.optim``, or one by
        import path that the job allows. Giving another one of the same class changes the numbers
        and keeps the state; one of another class begins without any. A torch optimizer is looked
        at again before every push, so that learning-rate schedulers work; its own state is not
        taken over.
        """
        self._refuse_closed()
        self._optimizer.set(optimizer)

    def save_optimizer_states(self, path: str) -> None:
        """Write the state of all servers' optimizers to ``path``, all or nothing.

        Every worker calls it, and every worker hears of an error. A file is written by rank 0,
        and is like that of any other store. Where ``path`` ends in a slash or is a folder, each
        server writes its own part there, and rank 0 an index of them.
        """
        self._refuse_closed()
        self._optimizer.save(path)

    def load_optimizer_states(self, path: str) -> None:
        """Read, on rank 0, what any store's :meth:`save_optimizer_states` wrote.

        Every worker calls it, and every worker hears of an error. The number of servers may be
        another one than when the file was written.
        """
        self._refuse_closed()
        self._optimizer.load(path)

    def optimizer_states(self) -> dict[Key, dict[str, object]]:
        """Return a copy of the optimizer's state for each key; a worker may call it alone."""
        self._refuse_closed()
        return self._optimizer.states()

    def set_optimizer_states(self, states: Mapping[Key, Mapping[str, object]]) -> None:
        """Replace all of the optimizer's state; every worker calls it, and rank 0's counts."""
        self._refuse_closed()
        self._optimizer.replace_states(states)

    def overwrite(self, key: Key | Sequence[Key], value: Values) -> None:
        """Replace stored values without any rule; every worker calls it, and rank 0's count."""
        keys, is_list, entries = self._found(key)
        pushes = calls.pushes(entries, keys, is_list, value)
        for push in pushes:
            calls.check_single(push)
        self._optimizer.overwrite(
            [
                (push.entry, to_dense(each) if each.is_sparse else each)
                for push in pushes
                for each in push.values
            ]
        )

    def set_gradient_compression(
        self, compression: Mapping[str, object] | Compressor | None
    ) -> None:
        """Compress what this worker pushes from now on; ``None`` switches compression off.

        First values, pulled values and row-sparse values are not compressed. Every change drops
        what earlier pushes left behind as residuals.
        """
        self._refuse_closed()
        compressor = create_compressor(compression)
        for entry in self._directory.all():
            entry.residuals = None
        self._sender.compress_with(compressor)

    def table(self, options: TableOptions) -> Table:
        """Make a table on the servers; every worker makes the same ones in the same order.

        Raises:
            ConfigError: Another worker declares it in another way, or the name is taken.
            UnsupportedError: The store exchanges weights after local steps.
        """
        self._refuse_closed()
        return self.tables.make(options)

    def barrier(self) -> None:
        """Return when every worker has called it."""
        self._refuse_closed()
        self._client.barrier(f"store {self._directory.number}", self._limits.barrier_timeout_s)

    def wait_all(self) -> None:
        """Return when every push of this worker is acknowledged."""
        self._refuse_closed()
        self._client.flush()

    def close(self) -> None:
        """Wait for this worker's pushes, then leave the job; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:
            return
        try:
            self._client.flush()
        finally:
            self._directory.clear()
            self._on_close()

    def num_dead_nodes(self) -> int:
        """Return how many nodes of the job are known to be dead."""
        self._refuse_closed()
        report = self._client.status(SCHEDULER, self._limits.exit_timeout_s)
        lost = report.get("lost", ())
        return len(lost) if isinstance(lost, Sequence) else 0

    def _found(self, key: Key | Sequence[Key]) -> tuple[list[Key], bool, list[DistEntry]]:
        self._refuse_closed()
        keys, is_list = to_keys(key)
        return keys, is_list, self._directory.find(keys)

    def _pull(
        self, targets: Sequence[tuple[DistEntry, Sequence[torch.Tensor]]], priority: int
    ) -> None:
        receipts, places = receipts_of(targets)
        self._client.pull(places, self._limits.pull_timeout_s, priority=priority)
        for receipt in receipts:
            receipt.finish()

    def _pulled_again(self, key: Key | Sequence[Key], out: Values, priority: int) -> bool:
        """Pull keys that were used together before; return whether they were."""
        self._refuse_closed()
        landing = self._preparer.pull(key, out)
        if landing is None:
            return False
        self._client.pull(landing, self._limits.pull_timeout_s, priority=priority)
        torch.autograd.graph.increment_version(landing.owners)
        return True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StateError("the store is closed; create another one")
        if os.getpid() != self._process:
            raise StateError(
                f"this process was forked from the worker, process {self._process}, and cannot use "
                "its links to the job; use the store there only"
            )
