"""The queue of what was agreed on, and what becomes of calls when it ends early."""

import threading

import pytest
import torch
from torch.distributed import HashStore

from bireme.collective import Handle, Topology
from bireme.collective.running import Runner, error_of
from bireme.collective.submissions import Call, Piece
from bireme.core.negotiation.fusion import Planned, fuse
from bireme.core.negotiation.member import Execute, Fail, Member, Settle, Stop
from bireme.core.negotiation.messages import Fault, Kind, Request
from bireme.errors import CollectiveError, EngineClosed, MismatchError, RankLost
from bireme.settings.collective import CollectiveSettings


@pytest.fixture
def runner():
    topology = Topology.on_one_machine(0, 2)
    runner = Runner(topology, HashStore(), CollectiveSettings(), threading.RLock())
    runner.member = Member(0)
    yield runner
    runner.close()


def submitted(runner, request):
    call = Call(Handle(1, request.name), 1, lambda values: values[0])
    runner.member.submit(request.key, None, Piece(call, 0), lambda: request)
    return call.handle


def test_errors_by_fault():
    assert [type(error_of(fault, "x")) for fault in Fault] == [
        MismatchError,
        EngineClosed,
        RankLost,
        CollectiveError,
    ]


def test_process_sets_are_known_once_they_are_settled(runner):
    handle = submitted(runner, add := Request("add", Kind.ADD_SET, numbers=(0, 1)))
    runner.obey([Settle(add, 3)])
    assert runner.has_work
    runner.work()
    assert handle.wait() == 3
    assert runner.sets[3] == (0, 1)
    handle = submitted(runner, remove := Request("remove", Kind.REMOVE_SET, numbers=(3,)))
    runner.obey([Settle(remove, 1)])
    runner.work()
    assert handle.wait() == 1
    assert 3 not in runner.sets
    runner.work()


def test_failures_are_told_at_once(runner):
    handle = submitted(runner, Request("a", Kind.ALLREDUCE))
    runner.obey([Fail((0, "a"), Fault.MISMATCH, "a: no"), Fail((0, "b"), Fault.MISMATCH, "b: no")])
    with pytest.raises(MismatchError, match="a: no"):
        handle.wait()
    assert not runner.has_work


def test_a_death_ends_everything_at_once(runner):
    handle = submitted(runner, Request("a", Kind.ALLREDUCE))
    runner.obey([Settle(Request("x", Kind.BARRIER), 0), Stop(Fault.LOST, "rank 1 is lost")])
    with pytest.raises(RankLost, match="rank 1"):
        handle.wait()
    assert not runner.has_work
    assert runner.stop == Stop(Fault.LOST, "rank 1 is lost")


def test_a_farewell_waits_for_its_turn(runner):
    handle = submitted(runner, barrier := Request("a", Kind.BARRIER))
    late = submitted(runner, Request("b", Kind.BARRIER))
    runner.obey([Settle(barrier, 0), Stop(Fault.CLOSED, "rank 0 has shut down")])
    assert runner.stop is None
    runner.work()
    assert handle.wait() == 0
    runner.work()
    with pytest.raises(EngineClosed, match="rank 0"):
        late.wait()


def test_a_failure_after_a_farewell_is_told_as_the_farewell(runner):
    handle = submitted(runner, Request("a", Kind.ALLREDUCE))
    runner.obey([Stop(Fault.CLOSED, "rank 0 has shut down")])
    runner.obey([Stop(Fault.BROKEN, "the exchange failed")])
    with pytest.raises(EngineClosed, match="rank 0 has shut down"):
        handle.wait()


@pytest.mark.parametrize("is_told_first", [True, False])
def test_an_exchange_that_fails_as_a_rank_leaves_ends_at_once(runner, monkeypatch, is_told_first):
    """Nobody is asked why: the rank that was interrupted has said that it shut down."""
    request = Request("a", Kind.ALLREDUCE, "float32", (2,))
    handle = submitted(runner, request)
    asked = []
    runner.on_failure = asked.append
    farewell = Stop(Fault.CLOSED, "rank 0 has shut down")

    def exchange(bucket, pieces):
        if is_told_first:
            runner.obey([farewell])
        raise CollectiveError("rank 0 gave up")

    monkeypatch.setattr(runner, "_exchange", exchange)
    runner.obey([Execute(fuse([Planned(request, num_elements=2)], 0))])
    runner.work()
    assert len(asked) == (not is_told_first)
    runner.obey([farewell])
    with pytest.raises(EngineClosed, match="rank 0 has shut down"):
        handle.wait()


def test_the_device_of_a_rank_without_tensors(runner):
    assert runner._device_of("cpu", [None]) == torch.device("cpu")
    runner.join_device = 1
    assert runner._device_of("cuda", [None]) == torch.device("cuda", 1)
