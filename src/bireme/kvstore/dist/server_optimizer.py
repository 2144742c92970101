"""The optimizer that the servers of a distributed store run: sent, kept up to date, saved."""

import threading
from collections.abc import Callable, Mapping, Sequence

import torch

from bireme.errors import BiremeError, JobError, StateError
from bireme.kvstore.base import Key
from bireme.kvstore.calls import Push
from bireme.kvstore.dist import server_states
from bireme.kvstore.dist.agreement import Agreement
from bireme.kvstore.dist.chosen import check_all_set
from bireme.kvstore.dist.directory import Directory
from bireme.kvstore.dist.entry import DistEntry
from bireme.node.partials import sum_dtype
from bireme.node.worker import WorkerClient
from bireme.update import Layout, OptimizerRunner, OptimizerSpec, needs_whole_values, to_body
from bireme.update import states as state_files
from bireme.update.state_folders import names_folder
from bireme.wire.messages import CommandKind, JobConfig

__all__ = ("ServerOptimizer",)


class ServerOptimizer:
    """Tells the servers what to do with the sums of one store.

    Args:
        client: The worker's link to the job.
        directory: The store's keys.
        agreement: Of the store's workers.
        config: The job's limits.
        delay_compensation: Strength of the servers' correction of late gradients.
    """

    def __init__(
        self,
        client: WorkerClient,
        directory: Directory,
        agreement: Agreement,
        config: JobConfig,
        delay_compensation: float = 0.0,
    ) -> None:
        self._client = client
        self._directory = directory
        self._agreement = agreement
        self._timeout_s = config.push_timeout_s
        self._compensation = delay_compensation
        self._live: torch.optim.Optimizer | None = None
        self._spec: OptimizerSpec | None = None
        self._runner: OptimizerRunner | None = None
        self._passed: set[tuple[Key, bool]] = set()
        self._sent: tuple[int, dict[str, object]] | None = None
        self._lock = threading.RLock()

    @property
    def is_set(self) -> bool:
        """Whether the servers run an optimizer."""
        return self._spec is not None

    def set(self, optimizer: torch.optim.Optimizer | OptimizerSpec) -> None:
        """Send an optimizer to every server; one of another class than before is a meeting.

        Raises:
            ConfigError: It cannot be described by a name and plain numbers; or, where workers
                meet, another worker sets another one, or none.
            StateError: It needs whole values, and keys were cut over servers before.
        """
        runner = OptimizerRunner(optimizer)
        spec = runner.spec
        refusal: BiremeError | None = None
        with self._lock:
            is_other = self._spec is None or self._spec.name != spec.name
        if is_other:
            check_all_set(self._agreement, spec)
        with self._lock:
            try:
                self._refuse_cut_keys(spec)
                self._send(spec)
            except BiremeError as error:
                if not is_other:
                    raise
                refusal = error
        if is_other:
            # A meeting: whatever any worker pushes from now on meets this optimizer. And if the
            # servers refuse it, every worker knows.
            self._agreement.share_outcome(refusal)
        if refusal is not None:
            raise refusal
        with self._lock:
            self._adopt(spec, runner)
            self._live = None if isinstance(optimizer, OptimizerSpec) else optimizer
            self._directory.splittable = not needs_whole_values(spec)

    def remove(self) -> None:
        """Let a push assign again; every worker calls it."""
        with self._lock:
            if self._spec is None:
                return
            self._client.command(self._number, CommandKind.SET_OPTIMIZER, {}, self._timeout_s)
            self._spec = self._live = self._runner = self._sent = None
            self._directory.splittable = True
        self._agreement.meet()

    def refresh(self) -> None:
        """Send the numbers again if they have changed, or if keys with own numbers were added."""
        # Without the lock: whoever has nothing to send does not wait for another thread's command.
        spec = self._spec
        if spec is None or self._is_up_to_date(spec, self._live):
            return
        with self._lock:
            spec = self._spec
            if spec is None:
                return
            if self._live is not None and not spec.describes(self._live):
                fresh = OptimizerRunner(self._live)
                self._refuse_cut_keys(fresh.spec)
                self._send(fresh.spec)
                self._adopt(fresh.spec, fresh)
            elif spec.groups or spec.lr_mult or spec.wd_mult:
                self._send(spec)

    def _is_up_to_date(self, spec: OptimizerSpec, live: torch.optim.Optimizer | None) -> bool:
        if live is not None and not spec.describes(live):
            return False
        if not (spec.groups or spec.lr_mult or spec.wd_mult):
            return True
        sent = self._sent
        return sent is not None and sent[0] == len(self._directory.all())

    def check(self, pushes: Sequence[Push[DistEntry]]) -> None:
        """Refuse gradients that the servers could not apply.

        Raises:
            StateError: The store applies pushes one by one and has no optimizer.
            ConfigError: A value holds integers, or the optimizer refuses its form.
            UnsupportedError: The optimizer takes no row-sparse gradients, or only such.
        """
        runner = self._runner
        if runner is None:
            if pushes and not self._directory.in_rounds:
                raise StateError(
                    "a store that is not synchronous applies every push by an optimizer, and none "
                    "is set; call set_optimizer before the first push, or use a 'dist_sync' store"
                )
            return
        for push in pushes:
            if (push.entry.key, push.row_sparse) not in self._passed:
                # Covered as well by the groups of a torch optimizer, if it has different ones.
                runner.check(push.entry.key, _on_server(push.entry), push.row_sparse)
                self._passed.add((push.entry.key, push.row_sparse))

    def states(self) -> dict[Key, dict[str, object]]:
        """Gather the state of every key; this worker alone."""
        self._required()
        self._client.flush()
        entries = self._directory.all()
        return server_states.gather(self._client, self._number, entries, self._timeout_s)

    def replace_states(self, states: Mapping[Key, Mapping[str, object]]) -> None:
        """Replace all state by rank 0's ``states``; every worker calls it."""
        self._required()
        self._rank_0_does(lambda: self._scatter("what was given", states))

    def save(self, path: str) -> None:
        """Write the state of every server to ``path``; every worker calls it.

        Rank 0 gathers it for a file. Into a folder, each server writes its own.
        """
        spec = self._required()
        if names_folder(path):
            entries = self._directory.all()
            self._rank_0_does(
                lambda: server_states.save_folder(
                    self._client, self._number, entries, path, spec, self._timeout_s
                )
            )
        else:
            self._rank_0_does(lambda: state_files.save(path, spec, self.states()))

    def load(self, path: str) -> None:
        """Give every server its part of a file of states; every worker calls it."""
        spec = self._required()
        stored = {
            entry.key: torch.empty(entry.layout.shape, device="meta")
            for entry in self._directory.all()
        }
        self._rank_0_does(
            lambda: self._scatter(path, state_files.load(path, spec, stored)),
        )

    def overwrite(self, values: Sequence[tuple[DistEntry, torch.Tensor]]) -> None:
        """Replace values by rank 0's; every worker calls it."""
        self._rank_0_does(
            lambda: server_states.overwrite(self._client, self._number, values, self._timeout_s)
        )

    @property
    def _number(self) -> int:
        return self._directory.number

    def _required(self) -> OptimizerSpec:
        if self._spec is None:
            raise StateError(
                "the servers run no optimizer, so they have no state; set_optimizer first"
            )
        return self._spec

    def _rank_0_does(self, work: Callable[[], None]) -> None:
        self._client.flush()
        # From here on no worker pushes until all are told of the outcome.
        self._agreement.meet()
        error: BiremeError | OSError | None = None
        if self._client.rank == 0:
            try:
                work()
            except (BiremeError, OSError) as refusal:
                error = refusal
            except Exception as failure:
                # The others wait to be told; what went wrong here is the cause of this error.
                error = JobError(f"{type(failure).__name__}: {failure}")
                error.__cause__ = failure
        self._agreement.share_outcome(error)

    def _scatter(self, source: str, states: Mapping[Key, Mapping[str, object]]) -> None:
        entries = self._directory.all()
        state_files.check(source, states, {each.key: each.layout.shape for each in entries})
        server_states.scatter(self._client, self._number, entries, states, self._timeout_s)

    def _adopt(self, spec: OptimizerSpec, runner: OptimizerRunner) -> None:
        if self._spec is None or _structure(self._spec) != _structure(spec):
            self._passed.clear()
        self._spec, self._runner = spec, runner

    def _send(self, spec: OptimizerSpec) -> None:
        entries = self._directory.all()
        if spec is self._spec and self._sent is not None and self._sent[0] == len(entries):
            return
        body = to_body(spec, {entry.key: entry.spans[0].slot[0] for entry in entries})
        if self._compensation:
            body["delay_compensation"] = self._compensation
        if self._sent is None or body != self._sent[1]:
            self._client.command(self._number, CommandKind.SET_OPTIMIZER, body, self._timeout_s)
        self._sent = (len(entries), body)

    def _refuse_cut_keys(self, spec: OptimizerSpec) -> None:
        if not needs_whole_values(spec):
            return
        for entry in self._directory.all():
            if len(entry.spans) > 1:
                raise StateError(
                    f"{spec.title} needs whole values, but key {entry.key!r} is cut "
                    "over servers already; call set_optimizer before init"
                )


def _on_server(entry: DistEntry) -> Layout:
    """Return what the optimizer sees of a key: dense, half types in float32, parts flattened."""
    layout = entry.layout
    shape = layout.shape
    if len(entry.spans) > 1:
        in_rows = entry.row_length > 1 and entry.has_whole_rows
        shape = torch.Size((1, 1) if in_rows else (1,))
    return Layout(shape, sum_dtype(layout.dtype), False)


def _structure(spec: OptimizerSpec) -> object:
    # What an optimizer accepts depends on which terms are switched on, not on their size.
    params = [spec.params, *spec.groups.values()]
    switched = [sorted((name, bool(value)) for name, value in each.items()) for each in params]
    return spec.name, switched, sorted(map(str, spec.groups)), spec.lr_mult, spec.wd_mult
