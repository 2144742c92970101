import msgspec
import pytest
from tests.core.nodes import of, sent

from bireme.core.actions import Close, EndJob, Send
from bireme.core.events import Lost as LinkLost
from bireme.core.events import Received, Tick
from bireme.core.scheduler import LINK_GRACE_S, Phase, SchedulerCore
from bireme.types.choices import DeathPolicy
from bireme.types.dtypes import DType
from bireme.types.nodes import Role, worker
from bireme.wire.messages import (
    Abort,
    Barrier,
    BarrierDone,
    Declare,
    Declared,
    Fault,
    Heartbeat,
    HeartbeatAck,
    JobConfig,
    Join,
    Joined,
    KeyDecl,
    Leave,
    LeaveAck,
    Pull,
    Refused,
    Shutdown,
    Start,
    Status,
    StatusRequest,
    ViewChange,
)

SERVER = 10
WORKER = 20


def join(role, rank, pid=None, hint=0, workers=3):
    pid = (rank or 0) if pid is None else pid
    return Join(role, rank, f"host-{role.letter}{rank}", pid, ("tcp://x",), workers, 1, "", hint)


def forming(policy=DeathPolicy.ABORT, **config):
    config = {"link_probe": False} | config
    core = SchedulerCore(JobConfig(3, 1, 3, death_policy=policy, **config), host="host-h")
    core.start(0.0)
    return core


def running(policy=DeathPolicy.ABORT, **config):
    core = forming(policy, **config)
    core.handle(Received(SERVER, join(Role.SERVER, 0)), 0.0)
    for rank in range(3):
        core.handle(Received(WORKER + rank, join(Role.WORKER, rank)), 0.0)
    assert core.phase is Phase.RUNNING
    return core


def keep_alive(core, now_s, *, silent=()):
    for link in (SERVER, *(WORKER + rank for rank in range(3))):
        if link not in silent:
            core.handle(Received(link, Heartbeat(now_s, core.view)), now_s)


def test_slow_links_make_small_slices_and_bundles_for_everyone():
    core = forming()
    core.handle(Received(SERVER, join(Role.SERVER, 0)), 0.0)
    for rank in range(3):
        message = msgspec.structs.replace(join(Role.WORKER, rank), link_mbps=50.0)
        actions = core.handle(Received(WORKER + rank, message), 0.0)
    start = sent(actions, Start)[0]
    assert (start.config.slice_bytes, start.config.bundle_bytes) == (32768, 32768)


def test_the_job_starts_when_all_are_there():
    core = forming()
    (joined,) = sent(core.handle(Received(SERVER, join(Role.SERVER, 0)), 0.0))
    assert isinstance(joined, Joined)
    for rank in (2, 0):
        assert not sent(core.handle(Received(WORKER + rank, join(Role.WORKER, rank)), 0.0), Start)
    starts = sent(core.handle(Received(WORKER + 1, join(Role.WORKER, 1)), 0.0), Start)
    assert len(starts) == 4
    assert [str(info.node) for info in starts[0].nodes] == ["H", "S[0]", "W[0]", "W[1]", "W[2]"]
    incarnations = [info.incarnation for info in starts[0].nodes]
    assert len(set(incarnations)) == 5


def test_a_job_that_does_not_form_names_the_missing():
    core = forming(start_timeout_s=7.0)
    core.handle(Received(WORKER, join(Role.WORKER, 0)), 0.0)
    core.handle(Received(WORKER, join(Role.WORKER, 0)), 5.0)
    assert core.next_deadline_s() <= 7.0
    actions = core.handle(Tick(), 7.0)
    (abort,) = sent(actions, Abort)
    (ended,) = of(actions, EndJob)
    for text in (abort.reason, ended.text):
        assert "within 7 s: S[0], W[1], W[2] missing" in text
    assert ended.exit_code == 1


def test_a_repeated_join_gets_the_same_answer():
    core = forming()
    first, second = (
        sent(core.handle(Received(WORKER, join(Role.WORKER, 0)), 0.0), Joined) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (join(Role.WORKER, 0, pid=99), "process 0 on host-W0"),
        (join(Role.WORKER, 7), "no new worker"),
        (join(Role.SERVER, 0, pid=99), "alive"),
        (join(Role.WORKER, None), "no new worker"),
        (join(Role.WORKER, 1, hint=77), "declared dead"),
    ],
)
def test_who_comes_too_late_is_refused_and_told_why(message, words):
    (refused,) = sent(running().handle(Received(99, message), 0.0), Refused)
    assert words in refused.reason


def test_a_death_ends_the_job_within_a_second_naming_culprit_host_and_reason():
    core = running()
    core.handle(LinkLost(WORKER + 1, "connection reset"), 1.0)
    assert core.next_deadline_s() <= 1.0 + LINK_GRACE_S < 2.0
    actions = core.handle(Tick(), 1.0 + LINK_GRACE_S)
    aborts = sent(actions, Abort)
    assert len(aborts) == 3
    assert aborts[0].culprit == worker(1)
    assert (aborts[0].host, aborts[0].reason) == ("host-W1", "connection reset")
    (ended,) = of(actions, EndJob)
    assert ended.text == "W[1] on host-W1: connection reset"
    assert core.next_deadline_s() is None


def test_silence_is_death():
    core = running(heartbeat_timeout_s=5.0)
    for second in range(1, 5):
        keep_alive(core, float(second), silent=[WORKER])
        assert not of(core.handle(Tick(), float(second)), EndJob)
    keep_alive(core, 5.5, silent=[WORKER])
    (ended,) = of(core.handle(Tick(), 5.5), EndJob)
    assert "W[0] on host-W0: silent for 5.5 s" in ended.text


def test_a_link_that_comes_back_in_time_is_no_death():
    core = running()
    incarnation = 3
    core.handle(LinkLost(WORKER, "reset"), 1.0)
    back = join(Role.WORKER, 0, hint=incarnation)
    (joined,) = sent(core.handle(Received(55, back), 1.2))
    assert joined.incarnation == incarnation
    keep_alive(core, 2.0)
    assert not of(core.handle(Tick(), 2.0), EndJob)


def test_the_job_goes_on_without_the_dead():
    core = running(DeathPolicy.CONTINUE)
    core.handle(Received(WORKER, Barrier("b", 0)), 0.5)
    core.handle(Received(WORKER + 2, Barrier("b", 0)), 0.5)
    core.handle(LinkLost(WORKER + 1, "reset"), 1.0)
    actions = core.handle(Tick(), 1.0 + LINK_GRACE_S)
    (change, *_) = sent(actions, ViewChange)
    assert change.view == 2
    assert [lost.node for lost in change.lost] == [worker(1)]
    assert len(sent(actions, BarrierDone)) == 2


def test_the_last_worker_that_dies_ends_the_job():
    core = running(DeathPolicy.CONTINUE)
    for rank in range(3):
        core.handle(LinkLost(WORKER + rank, "reset"), 1.0)
    (ended,) = of(core.handle(Tick(), 1.0 + LINK_GRACE_S), EndJob)
    assert "last worker" in ended.text
    assert ended.exit_code == 1


def test_a_dead_server_ends_the_job_under_any_policy():
    core = running(DeathPolicy.WAIT)
    core.handle(LinkLost(SERVER, "reset"), 1.0)
    (ended,) = of(core.handle(Tick(), 1.0 + LINK_GRACE_S), EndJob)
    assert "S[0] on host-S0" in ended.text


def test_a_replacement_takes_the_rank_any_number_of_times():
    core = running(DeathPolicy.WAIT)
    now_s, link, last = 1.0, WORKER + 1, 0
    for again in range(3):
        core.handle(LinkLost(link, "killed"), now_s)
        now_s += LINK_GRACE_S
        core.handle(Tick(), now_s)
        link = 70 + again
        actions = core.handle(Received(link, join(Role.WORKER, 1, pid=500 + again)), now_s)
        (start,) = [each for each in of(actions, Send) if isinstance(each.message, Start)]
        assert start.link == link
        assert start.message.replacement
        (change, *_) = sent(actions, ViewChange)
        (info,) = change.joined
        assert info.node == worker(1)
        assert info.incarnation > last
        assert change.lost == ()
        last = info.incarnation


def test_a_replacement_may_come_before_the_death_is_certain():
    core = running(DeathPolicy.WAIT)
    core.handle(LinkLost(WORKER, "killed"), 1.0)
    actions = core.handle(Received(70, join(Role.WORKER, 0, pid=500)), 1.1)
    assert sent(actions, Start)
    assert sent(actions, ViewChange)[-1].lost == ()


@pytest.mark.parametrize("policy", [DeathPolicy.WAIT, DeathPolicy.CONTINUE])
def test_a_replacement_waits_for_as_long_as_its_predecessor_seems_to_live(policy):
    core = running(policy, heartbeat_timeout_s=5.0, heartbeat_interval_s=0.25)
    keep_alive(core, 3.0, silent=[WORKER + 1])
    again = Received(70, join(Role.WORKER, 1, pid=500))
    assert sent(core.handle(again, 3.0)) == []
    assert sent(core.handle(again, 3.1)) == []
    keep_alive(core, 5.1, silent=[WORKER + 1])
    core.handle(Tick(), 5.1)
    (start,) = sent(core.handle(again, 5.2), Start)
    assert start.replacement
    # The next one is judged anew.
    assert sent(core.handle(Received(71, join(Role.WORKER, 1, pid=501)), 20.0)) == []


def test_a_second_process_for_the_rank_of_one_that_lives_is_refused_in_the_end():
    core = running(DeathPolicy.WAIT, heartbeat_timeout_s=5.0, heartbeat_interval_s=0.25)
    again = Received(70, join(Role.WORKER, 1, pid=500))
    for tenths in range(10, 62):
        keep_alive(core, tenths / 10)
        assert sent(core.handle(again, tenths / 10)) == []
    keep_alive(core, 6.3)
    (refused,) = sent(core.handle(again, 6.3))
    assert isinstance(refused, Refused)
    assert sent(core.handle(Received(WORKER + 1, Heartbeat(6.4, 1)), 6.4), HeartbeatAck)


def test_the_rank_of_one_that_lives_is_refused_at_once_where_nobody_is_replaced():
    core = running(DeathPolicy.ABORT)
    (refused,) = sent(core.handle(Received(70, join(Role.WORKER, 1, pid=500)), 3.0))
    assert isinstance(refused, Refused)


@pytest.mark.parametrize("policy", list(DeathPolicy))
def test_a_process_that_is_started_again_before_the_start_takes_its_place(policy):
    core = forming(policy)
    core.handle(Received(WORKER, join(Role.WORKER, 0)), 0.0)
    core.handle(LinkLost(WORKER, "killed"), 0.1)
    (joined,) = sent(core.handle(Received(77, join(Role.WORKER, 0, pid=500)), 0.2))
    assert joined.node == worker(0)
    assert not of(core.handle(Tick(), 5.0), EndJob)


def test_a_replacement_of_the_last_worker_comes_too_late():
    core = running(DeathPolicy.CONTINUE)
    for rank in range(2):
        core.handle(Received(WORKER + rank, Leave()), 1.0)
    core.handle(LinkLost(WORKER + 2, "killed"), 1.0)
    actions = core.handle(Received(70, join(Role.WORKER, 2, pid=500)), 1.1)
    assert of(actions, EndJob)[0].exit_code == 1
    assert not sent(actions, Joined)


def test_no_replacement_in_time_ends_the_job():
    core = running(DeathPolicy.WAIT, replace_timeout_s=2.0)
    core.handle(LinkLost(WORKER + 1, "killed"), 1.0)
    died_s = 1.0 + LINK_GRACE_S
    core.handle(Tick(), died_s)
    keep_alive(core, died_s + 2.0)
    (ended,) = of(core.handle(Tick(), died_s + 2.0), EndJob)
    assert "W[1] on host-W1: killed; no replacement came within 2 s" in ended.text


def test_one_that_was_declared_dead_is_refused_when_it_speaks():
    core = running(DeathPolicy.CONTINUE, heartbeat_timeout_s=5.0)
    keep_alive(core, 5.5, silent=[WORKER])
    assert Close(WORKER) in core.handle(Tick(), 5.5)
    actions = core.handle(Received(WORKER, Heartbeat(6.0, 1)), 6.0)
    assert "declared dead" in sent(actions, Refused)[0].reason
    actions = core.handle(Received(99, join(Role.WORKER, 0, hint=3)), 6.0)
    assert sent(actions, Refused)


def test_all_leave_and_the_servers_are_shut_down():
    core = running()
    for rank in range(3):
        actions = core.handle(Received(WORKER + rank, Leave()), 1.0)
        assert sent(actions, LeaveAck)
    assert sent(actions, Shutdown)
    assert core.phase is Phase.ENDING
    assert sent(core.handle(Received(WORKER, Leave()), 1.0), LeaveAck), "repeated, answered again"
    assert sent(core.handle(Received(SERVER, Heartbeat(1.1, 1)), 1.1), Shutdown)
    (ended,) = of(core.handle(Received(SERVER, Leave()), 1.2), EndJob)
    assert ended.exit_code == 0


def test_a_server_that_does_not_end_holds_the_job_up_for_a_while_only():
    core = running(exit_timeout_s=3.0)
    for rank in range(3):
        core.handle(Received(WORKER + rank, Leave()), 1.0)
    (ended,) = of(core.handle(Tick(), 4.0), EndJob)
    assert "S[0] did not end" in ended.text
    assert ended.exit_code == 0


def test_departures_are_told_together():
    core = running()
    for rank in range(2):
        assert not sent(core.handle(Received(WORKER + rank, Leave()), 1.0), ViewChange)
    changes = sent(core.handle(Tick(), 1.1), ViewChange)
    assert len(changes) == 2
    assert set(changes[0].left) == {worker(0), worker(1)}


def test_a_worker_that_leaves_with_a_reason_has_failed():
    core = running()
    actions = core.handle(Received(WORKER, Leave("ValueError: bad loss")), 1.0)
    assert of(actions, EndJob)[0].text == "W[0] on host-W0: ValueError: bad loss"


def test_keys_are_declared_once_for_all():
    core = running()
    decl = KeyDecl("w", (4,), DType.FLOAT32)
    for rank in range(2):
        (declared,) = sent(core.handle(Received(WORKER + rank, Declare(7, 0, (decl,))), 1.0))
        assert isinstance(declared, Declared)
        assert (declared.request, declared.keys[0].key_id) == (7, 0)
    other = KeyDecl("w", (5,), DType.FLOAT32)
    (fault,) = sent(core.handle(Received(WORKER + 2, Declare(8, 0, (other,))), 1.0))
    assert isinstance(fault, Fault)
    assert fault.request == 8
    assert "W[0]" in fault.text
    assert "W[2]" in fault.text


def test_a_node_behind_the_view_is_told_again():
    core = running(DeathPolicy.CONTINUE)
    core.handle(LinkLost(WORKER + 1, "reset"), 1.0)
    core.handle(Tick(), 1.0 + LINK_GRACE_S)
    late_s = 3.0
    messages = sent(core.handle(Received(WORKER, Heartbeat(late_s, 0)), late_s))
    assert [type(each) for each in messages] == [HeartbeatAck, Start, ViewChange]
    messages = sent(core.handle(Received(WORKER, Heartbeat(late_s, 2)), late_s))
    assert [type(each) for each in messages] == [HeartbeatAck]


def test_anybody_may_ask_how_the_job_is():
    core = running()
    core.handle(Received(WORKER, Barrier("b", 0)), 1.0)
    (status,) = sent(core.handle(Received(99, StatusRequest(3)), 2.0), Status)
    report = status.report
    assert report["phase"] == "running"
    assert report["missing"] == []
    assert report["barriers"] == [{"name": "b", "number": 0, "missing": [1, 2], "waiting_s": 1.0}]
    assert {node["node"] for node in report["nodes"]} == {"S[0]", "W[0]", "W[1]", "W[2]"}


@pytest.mark.parametrize(
    ("link", "message"), [(WORKER, Pull(0, 1, 0, 0, ())), (SERVER, Barrier("b", 0))]
)
def test_what_makes_no_sense_is_refused(link, message):
    assert sent(running().handle(Received(link, message), 1.0), Fault)


def test_a_stranger_is_sent_away():
    actions = running().handle(Received(99, Barrier("b", 0)), 1.0)
    assert sent(actions, Refused)
    assert of(actions, Close) == [Close(99)]
