"""A change of the training takes effect at a definite round, however much is under way."""

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
)
from bireme.sim.values import pack
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import CommandKind, InitEntry, KeyDecl

NUM_ROUNDS = 6
LIMIT_S = 60.0


def script(user, rank):
    """Hand in all rounds at once, with a new rate before each of them."""
    yield [ReadyCall(user.number(), LIMIT_S)]
    decls = tuple(KeyDecl(name, (1,), DType.FLOAT64) for name in ("a", "b"))
    yield [DeclareCall(user.number(), 0, decls, LIMIT_S)]
    if rank == 0:
        yield [InitCall(user.number(), 0, tuple(map(first_value, (0, 1))), LIMIT_S)]
    calls = []
    for step in range(NUM_ROUNDS):
        kind = CommandKind.SET_HYPER_PARAMETERS if step else CommandKind.SET_OPTIMIZER
        calls.append(CommandCall(user.number(), 0, kind, {"rate": 10.0**step}, LIMIT_S))
        entries = tuple((key, 0, pack([1.0]), 8, "raw", Layout.DENSE, 0) for key in (0, 1))
        calls.append(PushCall(user.number(), entries, LIMIT_S, want_value=True))
    yield calls
    yield [BarrierCall(user.number(), "end", LIMIT_S)]
    yield [LeaveCall(user.number(), LIMIT_S)]


script.num_keys = 2


def first_value(key_id):
    entry = InitEntry(key_id, 0, DType.FLOAT64, 1, 1, Layout.DENSE, Consistency.SYNC, 8)
    return entry, pack([0.0])


def pipelined_job(seed):
    cluster = run_job(script, num_workers=3, faults=ROUGH, seed=seed)
    check_ended_well(cluster)
    for values in cluster.values:
        for cell in values.cells.values():
            assert cell.value == [3.0 * 111_111.0]


@pytest.mark.parametrize("seed", range(10))
def test_each_round_has_its_own_rate(seed):
    pipelined_job(seed)
