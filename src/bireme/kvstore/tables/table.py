"""A table that lives on the servers of a store: pull rows by id, push their gradients.

:class:`~bireme.kvstore.dist.store.DistStore` makes it; :class:`bireme.nn.ShardedEmbedding` is its
face in a model.
"""

import threading
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.kvstore.tables import saving
from bireme.kvstore.tables.arguments import check_gradients, check_ids
from bireme.kvstore.tables.meeting import Meeting
from bireme.kvstore.tables.options import TableOptions
from bireme.node.memory import Held, bytes_of
from bireme.node.tables.index import Deal, deal
from bireme.node.tickets import Place, Ticket
from bireme.node.worker import PushItem, WorkerClient
from bireme.types.choices import Consistency, Layout
from bireme.types.nodes import server
from bireme.update import OptimizerSpec, to_body
from bireme.update.rowwise import RowOptimizer
from bireme.wire.messages import CommandKind, InitEntry, JobConfig, KeyDecl
from bireme.wire.tables import encode_table

__all__ = ("Batch", "Table")

_RAW = "raw"


class Batch:
    """Rows on their way: asked for, then :meth:`wait`.

    Args:
        deal: The ids, without duplicates, by server.
        rows: Where the rows go, in the order of ``deal.ids``.
        tickets: What is to be waited for.
        step: How many pushes of this worker the rows hold.
    """

    def __init__(self, deal: Deal, rows: torch.Tensor, tickets: list[Ticket], step: int) -> None:
        self.deal = deal
        self.rows = rows
        self.step = step
        self.tickets = tickets

    @property
    def failed(self) -> bool:
        """Whether a server has refused already, or was too late."""
        return any(ticket.error is not None for ticket in self.tickets)


class Table:
    """Rows by id, spread over all servers of a job.

    Args:
        client: The worker's link to the job.
        number: Number by which commands name the table.
        options: The table.
        consistency: When pushes are applied.
        staleness: For ``bounded``: rounds that a worker may be ahead of the slowest.
        config: The job's limits.
        meeting: Of the store's workers.

    Raises:
        ConfigError: Another worker declares the table in another way; raised on all of them.

    Guarantees:
        Every worker makes the same tables in the same order. A row is a function of the options
        and its id until its first update; it takes memory on a server from then on. A pull sees
        all earlier pushes of this worker: in synchronous training, those of all workers.
    """

    def __init__(
        self,
        client: WorkerClient,
        number: int,
        options: TableOptions,
        *,
        consistency: Consistency,
        staleness: int = 0,
        config: JobConfig,
        meeting: Meeting,
    ) -> None:
        self.options = options
        self._client = client
        self._number = number
        self._config = config
        self._meeting = meeting
        self._spec: OptimizerSpec | None = None
        self._lock = threading.Lock()
        self.num_steps = 0
        """Pushes of this worker so far."""
        self.num_loads = 0
        """How often rows were replaced from files; a batch from before is out of date."""
        specs = options.specs(config.num_servers)
        meeting.compare(f"table {number}", options)
        decl = KeyDecl(
            options.name,
            (0, options.dim),
            options.wire_dtype,
            Layout.TABLE,
            False,
            consistency,
            staleness,
        )
        (placement,) = client.declare(number, [decl], config.push_timeout_s)
        self._key_id = placement.key_id
        if client.rank == 0:
            described = [encode_table(spec) for spec in specs]
            entries = [
                (self._init_entry(index, len(raw), decl), Held(memoryview(raw)))
                for index, raw in enumerate(described)
            ]
            client.init(number, entries, config.push_timeout_s)

    @property
    def num_servers(self) -> int:
        """How many servers hold the rows."""
        return self._config.num_servers

    @property
    def optimizer(self) -> OptimizerSpec | None:
        """What the servers do with gradients, once it was set."""
        return self._spec

    def set_optimizer(self, spec: OptimizerSpec) -> None:
        """Update rows by ``spec`` from now on; every worker calls it.

        Another one of the same class changes the numbers and keeps the state of all rows, from
        the round that the lowest rank has reached. The first one, or one of another class, is a
        meeting of all workers and drops the state.

        Raises:
            UnsupportedError: It does not work row by row.
        """
        self._meeting.refuse_closed()
        if spec.groups or spec.lr_mult or spec.wd_mult:
            raise UnsupportedError(
                "a table is one key: give it an OptimizerSpec without groups, lr_mult and wd_mult"
            )
        if spec == self._spec:
            return
        RowOptimizer(spec, 1, self.options.dtype)
        is_other = self._spec is None or self._spec.name != spec.name
        body = to_body(spec, {})
        self._command(CommandKind.SET_OPTIMIZER, body)
        self._spec = spec
        if is_other:
            self._meeting.meet()

    def begin(self, ids: torch.Tensor, ahead: int = 0) -> Batch:
        """Ask for rows and return at once.

        Args:
            ids: int64 ids, one-dimensional, on the CPU.
            ahead: Pushes of this worker, beyond those made so far, that the rows must hold.

        Raises:
            ConfigError: An id is out of range.
        """
        self._meeting.refuse_closed()
        check_ids(ids, self.options)
        parts = deal(ids.detach().contiguous().numpy(), self._config.num_servers)
        rows = torch.empty(len(parts.ids), self.options.dim, dtype=self.options.dtype)
        wanted = torch.from_numpy(parts.ids)
        tickets = []
        for index, begin, end in parts.spans():
            if begin < end:
                ticket = self._client.begin_rows(
                    (self._key_id, index),
                    Held(bytes_of(wanted[begin:end])),
                    end - begin,
                    Place([rows[begin:end].view(-1)]),
                    self._config.pull_timeout_s,
                    ahead=ahead,
                )
                tickets.append(ticket)
        return Batch(parts, rows, tickets, self.num_steps + ahead)

    def wait(self, batch: Batch) -> torch.Tensor:
        """Return the rows of a batch, in the order of its ids without duplicates.

        Raises:
            WaitTimeout: A server did not answer in time; names it.
        """
        while batch.tickets:
            self._client.finish(batch.tickets[0])
            del batch.tickets[0]
        return batch.rows

    def pull(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rows of ``ids`` (any shape), one for each id; takes no memory on servers."""
        batch = self.begin(ids.reshape(-1))
        rows = self.wait(batch)
        return rows[torch.from_numpy(batch.deal.inverse)].view(*ids.shape, self.options.dim)

    def push(self, ids: torch.Tensor, grads: torch.Tensor, weight: float = 1.0) -> None:
        """Push gradients and return at once; an error is raised by a later call that waits.

        In synchronous training every worker pushes once in each round, without rows if it has
        none; the rows then get the mean of all workers' gradients, weighed by ``weight``.

        Args:
            ids: int64, one-dimensional; the gradients of an id that comes twice are added.
            grads: Of shape ``(len(ids), dim)``, on the CPU, in the table's type.
            weight: Samples behind the gradients, >= 0.

        Raises:
            ConfigError: Shapes or types do not fit, or an id is out of range.
            StateError: There is no optimizer.
        """
        self._meeting.refuse_closed()
        check_ids(ids, self.options)
        self.require_optimizer()
        check_gradients(len(ids), grads, weight, self.options)
        parts = deal(ids.detach().contiguous().numpy(), self._config.num_servers)
        total = torch.zeros(len(parts.ids), self.options.dim, dtype=self.options.dtype)
        total.index_add_(0, torch.from_numpy(parts.inverse), grads.detach())
        self.push_dealt(parts, total, weight)

    def push_dealt(self, parts: Deal, grads: torch.Tensor, weight: float) -> None:
        """Push gradients in the order of ``parts.ids``; they are copied."""
        ids = parts.ids.view(np.uint8)
        flat = grads.detach().contiguous().view(-1).numpy().view(np.uint8)
        width = self.options.dim * self.options.dtype.itemsize
        items: list[PushItem] = []
        for index, begin, end in parts.spans():
            raw = np.concatenate([ids[8 * begin : 8 * end], flat[width * begin : width * end]])
            held, slot = Held(memoryview(raw.data)), (self._key_id, index)
            items.append((*slot, held, raw.nbytes, _RAW, Layout.ROWS, end - begin))
        with self._lock:
            self._client.push(items, self._config.push_timeout_s, weight=weight, mean=True)
            self.num_steps += 1

    def flush(self) -> None:
        """Return when every push of this worker's store is acknowledged."""
        self._client.flush()

    def stats(self) -> dict[str, Any]:
        """Return counters; a worker may call it alone, at any time.

        Returns:
            ``rows`` that are held, ``bytes`` of memory they and their state take, ``evictions``
            so far and ``max_rows`` over all servers, and the same of each in ``servers``.
        """
        self._meeting.refuse_closed()
        found = [self._stats_of(index) for index in range(self._config.num_servers)]
        names = ("rows", "bytes", "evictions", "max_rows")
        return {name: sum(each[name] for each in found) for name in names} | {"servers": found}

    def save(self, folder: str) -> None:
        """Write all rows and their state to files, all or nothing; every worker calls it.

        Each server writes a file of its own to ``folder``, which must exist and be the same for
        all servers; rank 0 then writes ``<name>.table.json``, which names them. A file that was
        saved there before is replaced at that moment.

        Raises:
            ConfigError: A server cannot write there. Raised on every worker.
        """
        self._meeting.refuse_closed()
        self._client.flush()
        self._meeting.rank_0_does(lambda: saving.save(self._tell, folder, self.options, self._spec))

    def load(self, folder: str, *, optimizer_states: bool = True) -> None:
        """Replace all rows by saved ones, all or nothing; every worker calls it.

        The number of servers may be another one than when they were saved.

        Args:
            folder: Where :meth:`save` wrote.
            optimizer_states: Also take over the state of rows; the optimizer must then be of the
                class that it was (or not be set yet).

        Raises:
            ConfigError: A file is of another table or optimizer, is damaged, or cannot be read.
            DataError: The list of files is damaged.
        """
        self._meeting.refuse_closed()

        def work() -> None:
            manifest = saving.read_manifest(folder, self.options)
            body = manifest["optimizer"]
            if optimizer_states and body is not None:
                self._accept(folder, cast("Mapping[str, object]", body))
            saving.load(self._tell, folder, self.options, manifest, optimizer_states)

        self._client.flush()
        self._meeting.rank_0_does(work)
        self.num_loads += 1

    def _accept(self, folder: str, body: Mapping[str, object]) -> None:
        if self._spec is None:
            self._command(CommandKind.SET_OPTIMIZER, body)
        elif self._spec.name != body["name"]:
            raise ConfigError(
                f"{folder} holds states of {body['name']}, but table {self.options.name!r} uses "
                f"{self._spec.name}; load(..., optimizer_states=False) takes the rows alone"
            )

    def _init_entry(self, index: int, size_bytes: int, decl: KeyDecl) -> InitEntry:
        return InitEntry(
            self._key_id,
            index,
            decl.dtype,
            0,
            self.options.dim,
            Layout.TABLE,
            decl.consistency,
            size_bytes,
            staleness=decl.staleness,
        )

    def require_optimizer(self) -> None:
        """Raise unless an optimizer was set.

        Raises:
            StateError: None was.
        """
        if self._spec is None:
            raise StateError(
                f"table {self.options.name!r} has no optimizer; give it one, or let a Trainer step"
            )

    def _stats_of(self, index: int) -> dict[str, Any]:
        report = self._client.status(server(index), self._config.pull_timeout_s)
        tables = cast("list[dict[str, Any]]", report.get("tables", []))
        empty = {"rows": 0, "bytes": 0, "evictions": 0, "max_rows": 0}
        return next((each for each in tables if each["key_id"] == self._key_id), empty)

    def _command(self, kind: CommandKind, body: Mapping[str, object]) -> dict[int, Any]:
        answers = self._client.command(self._number, kind, body, self._config.push_timeout_s)
        return {rank: answer for rank, (answer, _) in answers.items()}

    def _tell(self, body: Mapping[str, object]) -> dict[int, Any]:
        return self._command(CommandKind.TABLE, body)
