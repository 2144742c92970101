from tests.core.nodes import (
    FIRST_SERVER,
    TO_SCHEDULER,
    ack,
    entries,
    identity,
    infos,
    of,
    running_worker,
    sent,
)

from bireme.core.actions import Complete, Connect, EndJob, Fail, Release
from bireme.core.calls import (
    BarrierCall,
    LeaveCall,
    PullCall,
    PushCall,
    ReadyCall,
)
from bireme.core.events import ConnectFailed, Linked, Lost, Received, Tick
from bireme.core.worker import WorkerCore
from bireme.errors import (
    JobAborted,
    StateError,
    WaitTimeout,
)
from bireme.types.nodes import SCHEDULER, Role, server, worker
from bireme.wire.messages import (
    Abort,
    Attach,
    Attached,
    Leave,
    LeaveAck,
    Pull,
    Push,
    Refused,
    Stale,
    Status,
    StatusRequest,
    ViewChange,
)


def test_it_joins_attaches_and_is_ready():
    core = WorkerCore(identity(Role.WORKER, 0))
    assert core.start(0.0) == [Connect(SCHEDULER, ())]
    assert core.handle(ReadyCall(1, 10.0), 0.0) == []
    assert running_worker().node == worker(0)


def test_calls_before_the_start_fail_at_once():
    core = WorkerCore(identity(Role.WORKER, 0))
    (fail,) = core.handle(BarrierCall(1, "b", 10.0), 0.0)
    assert isinstance(fail.error, StateError)


def test_a_push_is_sent_acknowledged_and_released():
    core = running_worker()
    (send,) = core.handle(PushCall(5, entries(0, 1), 10.0, weight=2.0, priority=-3), 0.0)
    push = send.message
    assert (push.rank, push.first_shard, push.end_shard, push.weight) == (0, 0, 1, 2.0)
    assert [(e.key_id, push.round + e.lead) for e in push.entries] == [(0, 0), (1, 0)]
    assert (send.payload, send.priority) == (("payload 0", "payload 1"), -3)
    assert core.handle(ack(push.request, (0, 0, 0)), 0.0) == [Release("payload 0")]
    actions = core.handle(ack(push.request, (1, 0, 0)), 0.0)
    assert actions == [Release("payload 1"), Complete(5)]
    assert core.handle(ack(push.request, (1, 0, 0)), 0.0) == []


def test_one_push_of_a_slot_is_under_way_and_the_next_follows():
    core = running_worker()
    (first,) = sent(core.handle(PushCall(5, entries(0), 10.0), 0.0))
    assert sent(core.handle(PushCall(6, entries(0, 1), 10.0), 0.0), Push)[0].entries[0].key_id == 1
    (second,) = sent(core.handle(ack(first.request, (0, 0, 0)), 0.0), Push)
    assert [(e.key_id, second.round + e.lead) for e in second.entries] == [(0, 1)]


def test_a_stale_push_is_sent_again_under_the_new_view():
    core = running_worker()
    (push,) = sent(core.handle(PushCall(5, entries(0), 10.0), 0.0))
    assert core.handle(Received(FIRST_SERVER, Stale(2, push.request)), 0.0) == []
    change = ViewChange(2, infos(2, 1))
    (again,) = sent(core.handle(Received(TO_SCHEDULER, change), 0.0), Push)
    assert (again.view, again.request) == (2, push.request)
    (again,) = sent(core.handle(Received(FIRST_SERVER, Stale(2, push.request)), 0.0), Push)
    assert again.view == 2


def test_a_broken_link_is_opened_again_and_what_was_lost_is_sent():
    core = running_worker()
    core.handle(PullCall(5, ((0, 0),), 10.0), 0.0)
    actions = core.handle(Lost(FIRST_SERVER, "reset"), 1.0)
    assert of(actions, Connect) == [Connect(server(0), ("tcp://0",))]
    core.handle(ConnectFailed(server(0), "refused"), 1.0)
    assert core.next_deadline_s() <= 1.2
    assert of(core.handle(Tick(), 1.25), Connect)
    assert sent(core.handle(PullCall(6, ((1, 0),), 10.0), 1.3)) == []
    assert sent(core.handle(Linked(9, server(0)), 1.4), Attach)
    assert len(sent(core.handle(Received(9, Attached(server(0), 2, 1)), 1.5), Pull)) == 2


def test_a_timeout_names_who_is_missing():
    core = running_worker(num_workers=3)
    core.handle(PushCall(5, entries(0), 2.0), 0.0)
    assert core.next_deadline_s() <= 2.0
    (question,) = sent(core.handle(Tick(), 2.0), StatusRequest)
    report = {"open": [{"key_id": 0, "index": 0, "round": 0, "missing": [1, 2]}]}
    (fail,) = of(core.handle(Received(FIRST_SERVER, Status(question.request, report)), 2.1), Fail)
    assert isinstance(fail.error, WaitTimeout)
    assert "push of key 'key0'" in str(fail.error)
    assert "W[1], W[2] missing" in str(fail.error)
    assert "2 s" in str(fail.error)


def test_a_push_outlives_its_call():
    core = running_worker()
    (push,) = sent(core.handle(PushCall(5, entries(0), 2.0), 0.0))
    core.handle(Tick(), 2.0)
    (fail,) = of(core.handle(Tick(), 3.0), Fail)
    assert "S[0] does not answer" in str(fail.error)
    assert core.handle(PushCall(6, entries(0), 9.0), 3.0) == []
    actions = core.handle(ack(push.request, (0, 0, 0)), 3.5)
    assert of(actions, Release) == [Release("payload 0")]
    assert sent(actions, Push)[0].round == 1


def test_an_abort_fails_every_call_with_the_culprit():
    core = running_worker()
    core.handle(PushCall(5, entries(0), 9.0), 0.0)
    core.handle(BarrierCall(6, "b", 9.0), 0.0)
    abort = Abort(worker(1), "host-2", "killed by signal 9", 1)
    actions = core.handle(Received(TO_SCHEDULER, abort), 0.0)
    assert {fail.call for fail in of(actions, Fail)} == {5, 6}
    for fail in of(actions, Fail):
        assert isinstance(fail.error, JobAborted)
        assert "W[1] on host-2: killed by signal 9" in str(fail.error)
    assert of(actions, Release) == [Release("payload 0")]
    assert isinstance(actions[-1], EndJob)
    (fail,) = core.handle(BarrierCall(7, "b", 9.0), 1.0)
    assert isinstance(fail.error, JobAborted)
    assert core.next_deadline_s() is None


def test_one_that_was_declared_dead_stops():
    core = running_worker()
    actions = core.handle(Received(TO_SCHEDULER, Refused("it was declared dead")), 0.0)
    assert actions[-1].exit_code == 1


def test_leaving_ends_all_calls_and_then_the_job():
    core = running_worker()
    core.handle(PullCall(5, ((0, 0),), 9.0), 0.0)
    actions = core.handle(LeaveCall(6, 9.0), 0.0)
    (fail,) = of(actions, Fail)
    assert fail.call == 5
    assert sent(actions, Leave) == [Leave("")]
    actions = core.handle(Received(TO_SCHEDULER, LeaveAck()), 0.0)
    assert Complete(6) in actions
    assert actions[-1].exit_code == 0


def test_a_scheduler_that_is_gone_is_no_failure_for_one_who_leaves():
    core = running_worker()
    core.handle(LeaveCall(6, 9.0), 0.0)
    core.handle(Lost(TO_SCHEDULER, "closed"), 0.0)
    actions = core.handle(ConnectFailed(SCHEDULER, "refused"), 0.1)
    assert Complete(6) in actions
    assert actions[-1].exit_code == 0


def test_a_dead_scheduler_ends_the_job_with_its_name():
    core = running_worker()
    core.handle(BarrierCall(5, "b", 90.0), 0.0)
    core.handle(Lost(TO_SCHEDULER, "reset"), 0.0)
    core.handle(ConnectFailed(SCHEDULER, "refused"), 0.1)
    actions = core.handle(Tick(), 1.5)
    assert "the scheduler on host-h" in actions[-1].text
    assert isinstance(of(actions, Fail)[0].error, JobAborted)
