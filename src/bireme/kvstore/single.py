"""A keyed store inside one process: everything that ``local`` and ``device`` share.

What differs between them is where a key lives, and the reducer that they hand over.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch

from bireme.errors import ConfigError, StateError
from bireme.kvstore import calls
from bireme.kvstore.base import Key, KVStore, Updater, Values
from bireme.kvstore.calls import Pull, Push, RowPull
from bireme.kvstore.entry import Entry
from bireme.kvstore.holding import Holding
from bireme.kvstore.keys import group, to_keys
from bireme.kvstore.reduce import Reducer, Sum, sum_rows
from bireme.kvstore.reduce.overlap import are_disjoint
from bireme.kvstore.reduce.rows import take_rows
from bireme.kvstore.table import Table
from bireme.update import states
from bireme.update.layout import Layout
from bireme.update.rule import Rule, Update, UpdaterRule
from bireme.update.runner import OptimizerRunner
from bireme.update.spec import OptimizerSpec
from bireme.update.state_folders import names_folder

__all__ = ("SingleProcessStore",)


class SingleProcessStore(KVStore):
    """A store whose workers are the devices of one process.

    Args:
        name: What :attr:`type` says.
        copier: Sums plain values, and writes stored ones into ``out`` tensors.

    Guarantees:
        All of :class:`~bireme.kvstore.base.KVStore`'s. A call on several keys is atomic as a
        whole: their locks are taken together, in the order of initialisation, so calls with
        overlapping lists cannot block each other for ever. A call from inside the store's own
        updater is an error.
    """

    def __init__(self, name: str, copier: Reducer) -> None:
        self._name = name
        self._copier = copier
        self._adder = copier
        self._table = Table()
        self._rule: Rule | None = None
        self._holding = Holding(name, self._table)

    @abstractmethod
    def _settle(self, pushes: Sequence[Push[Entry]]) -> None:
        """Decide where the keys of a push live and move them there; locks are held."""

    @property
    def type(self) -> str:
        """The lower-cased name the store was created under."""
        return self._name

    @property
    def rank(self) -> int:
        """Always 0: there is one worker."""
        return 0

    @property
    def num_workers(self) -> int:
        """Always 1."""
        return 1

    def is_capable(self, capability: str) -> bool:
        """Return whether the store has ``capability``: true of ``"optimizer"``.

        Raises:
            ConfigError: The capability is unknown.
        """
        super().is_capable(capability)
        return True

    def init(self, key: Key | Sequence[Key], value: Values) -> None:
        """Give ``key`` its first value."""
        self._holding.refuse_closed()
        keys, is_list = to_keys(key)
        if keys:
            self._table.add(calls.first_values(keys, is_list, value))

    def push(self, key: Key | Sequence[Key], value: Values, priority: int = 0) -> None:
        """Sum ``value`` over devices and give the sum to the updater."""
        calls.checked_priority(priority)
        keys, is_list, entries = self._found(key)
        pushes = calls.pushes(entries, keys, is_list, value)
        with self._holding.keys(entries):
            self._push(pushes)

    def pull(
        self, key: Key | Sequence[Key], out: Values | None = None, priority: int = 0
    ) -> torch.Tensor | list[torch.Tensor] | None:
        """Write the current value into every ``out``, or return a copy of it."""
        calls.checked_priority(priority)
        keys, is_list, entries = self._found(key)
        if out is None:
            with self._holding.keys(entries):
                copies = {entry.key: entry.value.clone() for entry in entries}
            return [copies[each] for each in keys] if is_list else copies[keys[0]]
        pulls = calls.pulls(entries, keys, is_list, out)
        with self._holding.keys(entries):
            self._pull(pulls)
        return None

    def pushpull(
        self,
        key: Key | Sequence[Key],
        value: Values,
        out: Values | None = None,
        priority: int = 0,
    ) -> None:
        """Push ``value``, then pull the result into ``out`` (into ``value`` when ``None``)."""
        calls.checked_priority(priority)
        keys, is_list, entries = self._found(key)
        pushes = calls.pushes(entries, keys, is_list, value)
        pulls = calls.pulls(entries, keys, is_list, value if out is None else out)
        with self._holding.keys(entries):
            if self._can_fuse(pushes, pulls, in_place=out is None):
                self._push_and_pull(pushes, pulls)
            else:
                self._push(pushes)
                self._pull(pulls)

    def broadcast(
        self, key: Key | Sequence[Key], value: Values, out: Values, priority: int = 0
    ) -> None:
        """Initialise ``key`` with ``value`` and write it into every ``out``."""
        calls.checked_priority(priority)
        self._holding.refuse_closed()
        keys, is_list = to_keys(key)
        if not keys:
            return
        first = calls.first_values(keys, is_list, value)
        for each, outs in group(keys, is_list, out, "out").items():
            calls.check_outs(each, Layout.of(each, first[each]), outs)
        self._table.add(first)
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
        keys, is_list, entries = self._found(key)
        if row_ids is None:
            raise ConfigError("row_sparse_pull needs row_ids; use pull for whole values")
        pulls = calls.row_pulls(entries, keys, is_list, out, row_ids)
        with self._holding.keys(entries):
            results = {pull.entry.key: pull.give(_taken(pull)) for pull in pulls}
        if out is not None:
            return None
        return [results[each] for each in keys] if is_list else results[keys[0]]

    @property
    def runs_updates(self) -> bool:
        """Whether a push goes to an updater or optimizer instead of replacing the value."""
        return self._rule is not None

    def set_updater(self, updater: Updater | None) -> None:
        """Call ``updater(key, merged, stored)`` on every push; ``None`` goes back to assigning.

        The updater must change ``stored`` in place and must not call the store. When it raises,
        the stored values of the call are put back.
        """
        if updater is not None and not callable(updater):
            raise ConfigError(f"an updater must be callable, got {updater!r:.60}")
        with self._holding.everything():
            self._rule = None if updater is None else UpdaterRule(updater)

    def set_optimizer(self, optimizer: torch.optim.Optimizer | OptimizerSpec) -> None:
        """Run ``optimizer`` on every push.

        A torch optimizer's hyper-parameters are read at every push. Giving another optimizer of
        the same class changes the hyper-parameters and keeps the state; ``set_updater(None)``
        drops both.
        """
        runner = OptimizerRunner(optimizer)
        with self._holding.everything():
            if not (isinstance(self._rule, OptimizerRunner) and self._rule.take_over(runner)):
                self._rule = runner

    def save_optimizer_states(self, path: str) -> None:
        """Write the optimizer's state to ``path``, all or nothing."""
        with self._holding.everything():
            runner = self._runner()
            write = states.save_folder if names_folder(path) else states.save
            write(path, runner.spec, runner.states())

    def load_optimizer_states(self, path: str) -> None:
        """Read what :meth:`save_optimizer_states` wrote; hyper-parameters stay as they are."""
        with self._holding.everything():
            runner = self._runner()
            stored = {entry.key: entry.value for entry in self._table.all()}
            runner.load_states(states.load(path, runner.spec, stored), stored)

    def optimizer_states(self) -> dict[Key, dict[str, object]]:
        """Return a copy of the optimizer's state for each key."""
        with self._holding.everything():
            return {key: _copied(state) for key, state in self._runner().states().items()}

    def set_optimizer_states(self, new: Mapping[Key, Mapping[str, object]]) -> None:
        """Replace all of the optimizer's state."""
        with self._holding.everything():
            runner = self._runner()
            stored = {entry.key: entry.value for entry in self._table.all()}
            states.check("what was given", new, {key: each.shape for key, each in stored.items()})
            runner.load_states({key: _copied(state) for key, state in new.items()}, stored)

    def overwrite(self, key: Key | Sequence[Key], value: Values) -> None:
        """Replace stored values, without any rule."""
        keys, is_list, entries = self._found(key)
        pushes = calls.pushes(entries, keys, is_list, value)
        for push in pushes:
            calls.check_single(push)
        with self._holding.keys(entries):
            for push in pushes:
                push.entry.overwrite(push.values[0])

    def barrier(self) -> None:
        """Return at once: there is one worker."""
        self._holding.refuse_closed()

    def wait_all(self) -> None:
        """Return when every device has finished what the store gave it."""
        with self._holding.everything() as entries:
            for device in {entry.value.device for entry in entries}:
                if device.type == "cuda":
                    torch.cuda.synchronize(device)

    def close(self) -> None:
        """Free what the store holds; a second call does nothing."""
        if self._holding.is_closed:
            return
        with self._holding.everything():
            self._holding.is_closed = True
            self._adder.forget()
            self._table.clear()
            self._rule = None

    def num_dead_nodes(self) -> int:
        """Always 0: there is one process."""
        self._holding.refuse_closed()
        return 0

    def _found(self, key: Key | Sequence[Key]) -> tuple[list[Key], bool, list[Entry]]:
        self._holding.refuse_closed()
        keys, is_list = to_keys(key)
        return keys, is_list, self._table.find(keys)

    def _push(self, pushes: Sequence[Push[Entry]]) -> None:
        rule = self._rule
        if rule is not None:
            rule.refresh()
        for push in pushes:
            if not push.row_sparse:
                self._adder.check(push.entry.key, push.values)
            if rule is not None:
                rule.check(push.entry.key, push.entry.layout, push.row_sparse)
        self._settle(pushes)
        if rule is None:
            self._assign(pushes)
            return
        rule.apply(self._merged(pushes))
        for push in pushes:
            if push.entry.layout.row_sparse:
                push.entry.value = push.entry.value.coalesce()

    def _assign(self, pushes: Sequence[Push[Entry]]) -> None:
        jobs = []
        for push in pushes:
            entry = push.entry
            if not push.row_sparse:
                jobs.append(Sum(entry.key, push.values, [entry.value]))
                continue
            total = self._total_rows(push)
            if entry.layout.row_sparse:
                entry.value = total
            else:
                entry.value.copy_(total.to_dense())
        if jobs:
            self._adder.run(jobs)

    def _total_rows(self, push: Push[Entry]) -> torch.Tensor:
        """Return the sum of row-sparse values, where the key lives."""
        return sum_rows(push.values, push.entry.value.device)

    def _merged(self, pushes: Sequence[Push[Entry]]) -> list[Update]:
        jobs, updates = [], []
        for push in pushes:
            entry = push.entry
            if push.row_sparse:
                merged = self._total_rows(push)
            else:
                merged = entry.merge_buffer()
                jobs.append(Sum(entry.key, push.values, [merged]))
            updates.append(Update(entry.key, merged, entry.value))
        if jobs:
            self._adder.run(jobs)
        return updates

    def _pull(self, pulls: Sequence[Pull[Entry]]) -> None:
        jobs = []
        for pull in pulls:
            entry = pull.entry
            value = entry.value.to_dense() if entry.layout.row_sparse else entry.value
            jobs.append(Sum(entry.key, [value], pull.outs))
        self._copier.run(jobs)

    def _can_fuse(
        self, pushes: Sequence[Push[Entry]], pulls: Sequence[Pull[Entry]], in_place: bool
    ) -> bool:
        if self._rule is not None or self._adder is not self._copier:
            return False
        if any(push.row_sparse for push in pushes):
            return False
        tensors = [value for push in pushes for value in push.values]
        if not in_place:
            tensors += [out for pull in pulls for out in pull.outs]
        return are_disjoint(tensors)

    def _push_and_pull(self, pushes: Sequence[Push[Entry]], pulls: Sequence[Pull[Entry]]) -> None:
        self._settle(pushes)
        self._adder.run(
            [
                Sum(push.entry.key, push.values, [push.entry.value, *pull.outs])
                for push, pull in zip(pushes, pulls, strict=True)
            ]
        )

    def _runner(self) -> OptimizerRunner:
        if not isinstance(self._rule, OptimizerRunner):
            raise StateError("the store runs no optimizer, so it has no state; set_optimizer first")
        return self._rule


def _copied(state: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in state.items()
    }


def _taken(pull: RowPull[Entry]) -> list[torch.Tensor]:
    return [take_rows(pull.entry.value, rows) for rows in pull.rows]
