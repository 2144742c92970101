"""Rows that are asked for before the push that they are to hold, on rough networks."""

import struct

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.scenarios.jobs import ROUGH, check_ended_well, run_job

from bireme.core.calls import (
    CommandCall,
    DeclareCall,
    InitCall,
    LeaveCall,
    PushCall,
    ReadyCall,
    RowsCall,
)
from bireme.sim.network import Faults
from bireme.sim.training import canonical_sum, gradient, initial
from bireme.sim.values import pack
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import CommandKind, InitEntry, KeyDecl

LENGTH, WANTED, RATE, LIMIT_S = 5, (4, 0), -0.1, 60.0
IDS = struct.pack(f"<{len(WANTED)}q", *WANTED)
SLOT = (0, 0)


def grad(rank, step):
    return gradient(SLOT, rank, step, [0.0] * LENGTH)


def expected(step, num_workers):
    """The wanted rows after ``step + 1`` rounds, computed straight."""
    value = initial(SLOT, LENGTH)
    for each in range(step + 1):
        total = canonical_sum(num_workers, {rank: grad(rank, each) for rank in range(num_workers)})
        value = [a + RATE * b for a, b in zip(value, total, strict=True)]
    return [value[row] for row in WANTED]


class Looking:
    """Asks for rows, pushes, and notes what came."""

    def __init__(self, num_steps):
        self.num_steps = num_steps
        self.seen = {}

    def __call__(self, user, rank):
        yield [ReadyCall(user.number(), LIMIT_S)]
        decl = KeyDecl("w", (LENGTH,), DType.FLOAT64)
        yield [DeclareCall(user.number(), 0, (decl,), LIMIT_S)]
        if rank == 0:
            size = 8 * LENGTH
            entry = InitEntry(*SLOT, DType.FLOAT64, LENGTH, 1, Layout.DENSE, Consistency.SYNC, size)
            yield [InitCall(user.number(), 0, ((entry, pack(initial(SLOT, LENGTH))),), LIMIT_S)]
        body = {"rate": RATE}
        yield [CommandCall(user.number(), 0, CommandKind.SET_OPTIMIZER, body, LIMIT_S)]
        for step in range(self.num_steps):
            payload = pack(grad(rank, step))
            push = (*SLOT, payload, len(payload), "raw", Layout.DENSE, 0)
            yield [
                RowsCall(user.number(), *SLOT, IDS, len(IDS), len(WANTED), LIMIT_S, ahead=1),
                PushCall(user.number(), (push,), LIMIT_S),
            ]
            self.seen[rank, step] = user.values[SLOT]
        yield [LeaveCall(user.number(), LIMIT_S)]


@settings(max_examples=25, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.sampled_from([None, ROUGH, Faults(drop=0.15)]), st.integers(1, 4), st.integers(0, 10_000))
def test_they_hold_that_push_and_no_later_one(faults, num_workers, seed):
    script = Looking(num_steps=5)
    cluster = run_job(
        script, num_workers=num_workers, num_servers=2, faults=faults, seed=seed, slice_bytes=4096
    )
    check_ended_well(cluster)
    assert len(script.seen) == 5 * num_workers
    for (_, step), (version, rows) in script.seen.items():
        assert version == step + 1
        assert rows == expected(step, num_workers)
