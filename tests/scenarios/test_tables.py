"""Tables on rough networks: the product's own rows under virtual time.

Gradients are small whole numbers, so that sums in float32 are exact in any order, and a push that
is lost, or counts twice, shows in the rows.
"""

import struct

import numpy as np
import pytest
from tests.scenarios.jobs import ROUGH, check_ended_well, run_job

from bireme.core.calls import (
    BarrierCall,
    CommandCall,
    DeclareCall,
    InitCall,
    LeaveCall,
    PushCall,
    ReadyCall,
    ResumeCall,
    RowsCall,
)
from bireme.errors import BiremeError
from bireme.node.tables.values import WithTables
from bireme.sim.cluster import Cluster
from bireme.sim.disturbance import Disturbance, Trouble, draw
from bireme.sim.network import Faults
from bireme.sim.values import FloatValues, pack
from bireme.types.choices import Consistency, DeathPolicy, Eviction, Initialiser, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import worker
from bireme.update.body import to_body
from bireme.update.spec import OptimizerSpec
from bireme.wire.messages import CommandKind, InitEntry, KeyDecl
from bireme.wire.tables import TableSpec, encode_table

DIM, STORE, NUM_IDS, LIMIT_S = 2, 1 << 40, 12, 60.0
SGD = to_body(OptimizerSpec("sgd", {"lr": 1.0}), {})


class Frame:
    """Bytes as a transport hands them over."""

    def __init__(self, payload):
        self.payload = memoryview(payload)


def framed(payload):
    return None if payload is None else Frame(payload)


class TableValues(FloatValues):
    """A server's values with the tables that servers have."""

    def __init__(self):
        super().__init__()
        self.tables = WithTables(FloatValues())

    def check_init(self, entry):
        self.tables.check_init(entry)

    def can_update(self, store):
        return self.tables.can_update(store)

    def seen(self, cell, rank, version):
        self.tables.seen(cell, rank, version)

    def corrected(self, cell, total, rank):
        return self.tables.corrected(cell, total, rank)

    def merge(self, partial, other):
        return self.tables.merge(partial, other)

    def finish(self, cell, total, numerator, denominator, version):
        self.tables.finish(cell, total, numerator, denominator, version)

    def report(self):
        return self.tables.report()

    def initialise(self, store, entry, payload, offset_bytes):
        return self.tables.initialise(store, entry, framed(payload), offset_bytes)

    def check_push(self, cell, entry, payload, offset_bytes):
        self.tables.check_push(cell, entry, framed(payload), offset_bytes)

    def first(self, cell, entry, payload, offset_bytes, weight):
        self.num_taken += 1
        return self.tables.first(cell, entry, framed(payload), offset_bytes, weight)

    def add(self, cell, partial, entry, payload, offset_bytes, weight):
        self.num_taken += 1
        return self.tables.add(cell, partial, entry, framed(payload), offset_bytes, weight)

    def join(self, cells):
        return None

    def read_rows(self, cell, payload, num_ids):
        held, size = self.tables.read_rows(cell, framed(payload), num_ids)
        return bytes(held.view), size

    def command(self, store, command, body, payload):
        return self.tables.command(store, command, body, framed(payload))


class TableCluster(Cluster):
    values_class = TableValues


def gradients(rank, step):
    """The ids that a worker pushes in a step, and a whole number for each."""
    ids = sorted({(3 * rank + 5 * step + i * i) % NUM_IDS for i in range(4)})
    return {row: float(1 + (rank + 2 * step + row) % 5) for row in ids}


class Training:
    """Pushes to a table, and notes what is refused and what the rows are in the end.

    Args:
        consistency: Of the table.
        num_steps: Of each worker.
        max_rows: On each server; 0 for no limit.
        eviction: What happens beyond.
    """

    def __init__(self, consistency, num_steps=5, max_rows=0, eviction=Eviction.REFUSE):
        self.consistency = consistency
        self.num_steps = num_steps
        self.max_rows = max_rows
        self.eviction = eviction
        self.num_servers = 2
        self.refused = {}
        self.rows = {}

    def __call__(self, user, rank):
        started = (yield [call := ReadyCall(user.number(), LIMIT_S)])[call.call]
        decl = KeyDecl("t", (0, DIM), DType.FLOAT32, Layout.TABLE, False, self.consistency, 1)
        call = DeclareCall(user.number(), STORE, (decl,), LIMIT_S)
        (key,) = (yield [call])[call.call]
        first = 0
        if started.replacement:
            call = ResumeCall(user.number(), (key.key_id,), LIMIT_S)
            first = (yield [call])[call.call][key.key_id]
        if rank == 0:
            yield [InitCall(user.number(), STORE, tuple(self.entries(key.key_id)), LIMIT_S)]
        command = CommandKind.SET_OPTIMIZER
        yield [CommandCall(user.number(), STORE, command, SGD, LIMIT_S)]
        yield [BarrierCall(user.number(), "ready", LIMIT_S)]
        for step in range(first, self.num_steps):
            for server in range(self.num_servers):
                yield from self.push(user, key.key_id, rank, step, server)
        yield [BarrierCall(user.number(), "over", LIMIT_S)]
        for server in range(self.num_servers):
            yield from self.look(user, key.key_id, rank, server)
        yield [LeaveCall(user.number(), LIMIT_S)]

    def entries(self, key_id):
        for index in range(self.num_servers):
            spec = TableSpec(
                dim=DIM,
                initialiser=Initialiser.ZEROS,
                max_rows=self.max_rows,
                eviction=self.eviction,
                index=index,
                num_slots=self.num_servers,
            )
            raw = encode_table(spec)
            kind = (DType.FLOAT32, 0, DIM, Layout.TABLE, self.consistency, len(raw))
            yield InitEntry(key_id, index, *kind, staleness=1), raw

    def push(self, user, key_id, rank, step, server):
        found = {
            row: g for row, g in gradients(rank, step).items() if row % self.num_servers == server
        }
        raw = struct.pack(f"<{len(found)}q", *found)
        raw += np.repeat(np.array(list(found.values()), np.float32), DIM).tobytes()
        item = (key_id, server, raw, len(raw), "raw", Layout.ROWS, len(found))
        try:
            yield [PushCall(user.number(), (item,), LIMIT_S, mean=True)]
        except BiremeError as error:
            self.refused[rank, step, server] = str(error)

    def look(self, user, key_id, rank, server):
        ids = list(range(server, NUM_IDS, self.num_servers))
        asked = struct.pack(f"<{len(ids)}q", *ids)
        yield [RowsCall(user.number(), key_id, server, asked, len(asked), len(ids), LIMIT_S)]
        raw = pack(user.values[key_id, server][1])
        rows = np.frombuffer(raw, np.float32).reshape(len(ids), DIM)
        self.rows[rank] = self.rows.get(rank, {}) | dict(zip(ids, rows.tolist(), strict=True))

    def expected(self, num_workers):
        """The rows if each push that was not refused counted once."""
        rows = dict.fromkeys(range(NUM_IDS), 0.0)
        parts = num_workers if self.consistency is Consistency.SYNC else 1
        for rank in range(num_workers):
            for step in range(self.num_steps):
                for row, number in gradients(rank, step).items():
                    if (rank, step, row % self.num_servers) not in self.refused:
                        rows[row] -= number / parts
        return {row: [value] * DIM for row, value in rows.items()}


def table_job(training, num_workers=2, **options):
    cluster = run_job(
        training, num_workers=num_workers, num_servers=2, cluster_class=TableCluster, **options
    )
    check_ended_well(cluster)
    assert cluster.clock.now_s < 400.0
    return cluster


def cells(cluster):
    return [cell for values in cluster.values for cell in values.tables._tables.values()]


KINDS = (Consistency.SYNC, Consistency.ASYNC, Consistency.BOUNDED)
NETWORKS = (Faults(), ROUGH, Faults(drop=0.15), Faults(duplicate=0.4, most_delay_s=0.05))


@pytest.mark.parametrize("consistency", KINDS)
@pytest.mark.parametrize("faults", NETWORKS, ids=["good", "rough", "drops", "duplicates"])
@pytest.mark.parametrize("seed", range(3))
def test_each_push_counts_once(consistency, faults, seed):
    training = Training(consistency)
    table_job(training, num_workers=4, faults=faults, seed=seed)
    assert not training.refused
    assert all(rows == training.expected(4) for rows in training.rows.values())
    assert len(training.rows) == 4


@pytest.mark.parametrize("consistency", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_each_push_counts_once_although_links_break_and_nodes_stop(consistency, seed):
    training = Training(consistency)
    plan = draw(
        seed,
        num_workers=2,
        num_servers=2,
        troubles=[Trouble.CUT, Trouble.FREEZE],
        number=6,
        until_s=0.4,
    )
    table_job(training, plan=plan, seed=seed, faults=Faults(least_delay_s=0.001, most_delay_s=0.02))
    assert all(rows == training.expected(2) for rows in training.rows.values())


@pytest.mark.parametrize("consistency", KINDS)
@pytest.mark.parametrize("at_s", [0.05, 0.11, 0.17, 0.23])
def test_a_worker_that_dies_and_comes_back_pushes_nothing_twice(consistency, at_s):
    training = Training(consistency, num_steps=8)
    plan = [
        Disturbance(at_s, Trouble.CRASH, worker(1)),
        Disturbance(at_s + 0.7, Trouble.RESTART, worker(1)),
    ]
    faults = Faults(least_delay_s=0.002, most_delay_s=0.01)
    table_job(training, plan=plan, faults=faults, policy=DeathPolicy.WAIT)
    assert training.rows[0] == training.rows[1] == training.expected(2)


@pytest.mark.parametrize("seed", range(4))
def test_what_does_not_fit_is_refused_as_a_whole_and_once(seed):
    training = Training(Consistency.ASYNC, max_rows=4)
    cluster = table_job(training, num_workers=2, faults=ROUGH, seed=seed)
    assert training.refused
    # The answer to a push that comes again says only that it was refused.
    wanted = ("raise max_rows", "was refused before")
    assert all(any(each in text for each in wanted) for text in training.refused.values())
    assert all(rows == training.expected(2) for rows in training.rows.values())
    assert all(len(cell.rows) <= 4 for cell in cells(cluster))


@pytest.mark.parametrize("eviction", [Eviction.LRU, Eviction.LFU])
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_go_keep_a_table_within_its_limit(eviction, seed):
    training = Training(Consistency.ASYNC, max_rows=4, eviction=eviction)
    cluster = table_job(training, num_workers=2, faults=ROUGH, seed=seed)
    assert not training.refused
    assert all(0 < len(cell.rows) <= 4 for cell in cells(cluster))
    assert sum(cell.rows.num_evicted for cell in cells(cluster))
    # Whoever looks sees the same, and a row that went is as it was at first.
    assert training.rows[0] == training.rows[1]
    gone = [row for row, values in training.rows[0].items() if values == [0.0] * DIM]
    assert len(gone) >= NUM_IDS - 8
