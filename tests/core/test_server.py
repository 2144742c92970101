import pytest
from tests.core.nodes import (
    TO_SCHEDULER,
    identity,
    infos,
    initialise,
    of,
    push,
    running_server,
    sent,
    start,
)

from bireme.core.actions import Close, EndJob, Send
from bireme.core.commands import MOST_WAITING
from bireme.core.events import Linked, Lost, Received, Tick
from bireme.core.server import ServerCore
from bireme.sim.values import FloatValues
from bireme.types.nodes import SCHEDULER, Role, server, worker
from bireme.wire.messages import (
    Abort,
    Ack,
    Attach,
    Attached,
    Command,
    CommandDone,
    CommandKind,
    DeathPolicy,
    Fault,
    FaultCode,
    Heartbeat,
    Joined,
    Leave,
    Pull,
    PullEntry,
    Shutdown,
    Stale,
    Status,
    StatusRequest,
    ViewChange,
)
from bireme.wire.messages import Lost as LostNode


def view_change(view, *, lost=(), left=(), incarnations=None):
    gone = {worker(rank) for rank in (*lost, *left)}
    nodes = tuple(each for each in infos(3, 1, incarnations) if each.node not in gone)
    records = tuple(LostNode(worker(rank), 3 + rank, "host", "killed") for rank in lost)
    return Received(TO_SCHEDULER, ViewChange(view, nodes, records, (), tuple(map(worker, left))))


def test_data_before_attach_is_refused_and_changes_nothing():
    core = running_server()
    (fault,) = sent(core.handle(Received(99, push(0, 0, 1.0).message, b"12345678"), 0.0), Fault)
    assert "Attach" in fault.text


def test_an_early_attach_waits_for_its_view():
    core = ServerCore(identity(Role.SERVER, 0), FloatValues())
    core.start(0.0)
    core.handle(Linked(TO_SCHEDULER, SCHEDULER), 0.0)
    core.handle(Received(TO_SCHEDULER, Joined(server(0), 2, 0.25, 5.0)), 0.0)
    assert core.handle(Received(10, Attach(worker(0), 3, 1)), 0.0) == []
    assert sent(core.handle(Received(TO_SCHEDULER, start(2, 1)), 0.0), Attached)


@pytest.mark.parametrize(
    "attach", [Attach(worker(0), 99, 1), Attach(worker(9), 3, 1), Attach(server(0), 2, 1)]
)
def test_who_is_not_a_living_worker_is_turned_away(attach):
    actions = running_server().handle(Received(50, attach), 0.0)
    assert sent(actions, Fault)
    assert of(actions, Close) == [Close(50)]


def test_an_old_view_is_refused_and_changes_nothing():
    values = FloatValues()
    core = running_server(3, values, death_policy=DeathPolicy.WAIT)
    initialise(core)
    core.handle(view_change(2, lost=[2]), 0.0)
    assert sent(core.handle(push(0, 0, 1.0, request=4), 0.0)) == [Stale(2, 4)]
    pull = Pull(5, 1, 0, 0, (PullEntry(0, 0, 0),))
    assert sent(core.handle(Received(10, pull), 0.0)) == [Stale(2, 5)]
    assert values.num_taken == 0
    assert sent(core.handle(push(0, 0, 1.0, view=2), 0.0)) == []
    assert values.num_taken == 1


def test_a_dead_incarnation_is_cut_off_and_its_contribution_stays():
    values = FloatValues()
    core = running_server(3, values, death_policy=DeathPolicy.WAIT)
    initialise(core)
    core.handle(push(2, 0, 4.0), 0.0)
    assert Close(12) in core.handle(view_change(2, lost=[2]), 0.0)
    core.handle(view_change(3, incarnations={worker(2): 9}), 0.0)
    core.handle(Received(20, Attach(worker(2), 9, 3)), 0.0)
    assert sent(core.handle(push(2, 0, 100.0, view=3), 0.0), Ack) == []
    again = push(2, 0, 100.0, view=3).message
    assert sent(core.handle(Received(20, again, b"\0" * 8), 0.0)) == []
    core.handle(push(0, 0, 1.0, view=3), 0.0)
    actions = core.handle(push(1, 0, 2.0, view=3), 0.0)
    assert {each.link for each in of(actions, Send)} == {10, 11, 20}
    assert values.cells[0, 0].value == [7.0]


def test_a_round_goes_on_without_the_lost_and_makes_up_for_their_weight():
    values = FloatValues()
    core = running_server(3, values, death_policy=DeathPolicy.CONTINUE)
    initialise(core)
    core.handle(push(0, 0, 2.0), 0.0)
    core.handle(push(1, 0, 4.0), 0.0)
    assert len(sent(core.handle(view_change(2, lost=[2]), 0.0), Ack)) == 2
    assert values.cells[0, 0].value == [6.0 * 3 / 2]


def test_nothing_is_made_up_for_those_who_left_in_good_order():
    values = FloatValues()
    core = running_server(3, values)
    initialise(core)
    core.handle(push(0, 0, 2.0), 0.0)
    core.handle(push(1, 0, 4.0), 0.0)
    core.handle(view_change(2, left=[2]), 0.0)
    assert values.cells[0, 0].value == [6.0]


def test_the_leaders_command_is_carried_out_once_and_a_lost_answer_repeated():
    values = FloatValues()
    core = running_server(2, values)
    command = Command(3, 1, 0, CommandKind.SET_OPTIMIZER, {"rate": 0.5})
    assert sent(core.handle(Received(11, command), 0.0)) == [CommandDone(3, {"applied_by": 0})]
    assert values.commands == []
    for _ in range(2):
        assert sent(core.handle(Received(10, command), 0.0)) == [CommandDone(3, {})]
    assert values.commands == [{"rate": 0.5}]


def test_a_wrong_command_is_refused_each_time_it_is_sent():
    core = running_server()
    command = Command(3, 1, 0, CommandKind.SET_OPTIMIZER, {"rate": "fast"})
    for _ in range(2):
        (fault,) = sent(core.handle(Received(10, command), 0.0), Fault)
        assert fault.request == 3


def test_a_server_answers_whatever_a_worker_sends():
    (fault,) = sent(running_server().handle(Received(10, Heartbeat(0.0)), 0.0), Fault)
    assert "Heartbeat" in fault.text


def test_anybody_may_ask_how_it_is():
    core = running_server()
    initialise(core)
    core.handle(push(0, 0, 1.0), 5.0)
    for link in (10, 77):
        (status,) = sent(core.handle(Received(link, StatusRequest(4)), 7.0), Status)
        assert status.request == 4
        (waiting,) = status.report["open"]
        assert waiting["missing"] == [1]
        assert waiting["waiting_s"] == 2.0


@pytest.mark.parametrize(
    ("message", "code"), [(Shutdown(), 0), (Abort(worker(1), "b", "killed", 3), 3)]
)
def test_it_ends_when_the_scheduler_says_so(message, code):
    core = running_server()
    actions = core.handle(Received(TO_SCHEDULER, message), 0.0)
    assert actions[-1].exit_code == code
    assert {each.link for each in of(actions, Close)} == {10, 11, TO_SCHEDULER}
    assert sent(actions, Leave)
    assert core.ended
    assert core.handle(push(0, 0, 1.0), 0.0) == []


def test_a_lost_worker_link_is_forgotten():
    core = running_server()
    initialise(core)
    core.handle(Lost(10, "reset"), 0.0)
    assert sent(core.handle(push(0, 0, 1.0), 0.0), Fault)


def test_a_silent_scheduler_ends_it():
    core = running_server()
    for second in range(5):
        assert of(core.handle(Tick(), float(second)), EndJob) == []
    (ended,) = of(core.handle(Tick(), 6.0), EndJob)
    assert "scheduler on host-h" in ended.text


class Failing(FloatValues):
    def finish(self, *arguments):
        from bireme.errors import ConfigError

        raise ConfigError("the optimizer cannot take this")


def test_a_failing_update_ends_the_job_with_its_reason():
    core = running_server(1, Failing())
    initialise(core)
    (leave,) = sent(core.handle(push(0, 0, 1.0), 0.0), Leave)
    assert "cannot take this" in leave.reason


def test_of_many_early_attaches_of_a_link_one_is_kept():
    core = running_server(1)
    for _ in range(1000):
        assert core.handle(Received(30, Attach(worker(0), 7, 2)), 0.0) == []
    assert len(core._early) == 1
    core.handle(Lost(30, "reset"), 0.0)
    assert not core._early


def test_a_worker_that_runs_ahead_of_the_leader_is_told_so():
    core = running_server(2)
    kind = CommandKind.SET_HYPER_PARAMETERS
    for number in range(MOST_WAITING + 1):
        answers = sent(core.handle(Received(11, Command(number, 1, 0, kind, {})), 0.0))
    (fault,) = answers
    assert (fault.code, fault.request) == (FaultCode.WRONG_STATE, MOST_WAITING)
    assert "more than W[0]" in fault.text
