from tests.core.nodes import FIRST_SERVER, entries, of, running_worker, sent

from bireme.core.actions import Complete, Deliver, Fail, Hold, Log, Release
from bireme.core.calls import CommandCall, InitCall, PullCall, PushCall, ResumeCall, RowsCall
from bireme.core.events import Received
from bireme.errors import ConfigError, StateError
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import (
    Ack,
    CommandDone,
    CommandKind,
    Fault,
    FaultCode,
    Init,
    InitEntry,
    Pull,
    Push,
    RoundEntry,
    RoundsReply,
    Rows,
    SlotRound,
    Value,
    ValueEntry,
)


def value(request, *found, link=FIRST_SERVER):
    first = min(version for _, version, _ in found)
    parts = tuple(ValueEntry(key, 0, version - first, size) for key, version, size in found)
    return Received(link, Value(request, 1, first, parts), "bytes")


def test_a_pushpull_is_acknowledged_by_its_values():
    core = running_worker()
    (push,) = sent(core.handle(PushCall(5, entries(0, 1), 9.0, want_value=True), 0.0))
    assert core.handle(Received(FIRST_SERVER, Ack(push.request, 1, (SlotRound(0, 0, 0),))), 0) == []
    arrived = value(push.request, (1, 1, 8))
    assert core.expects(arrived.message) == (5,)
    actions = core.handle(arrived, 0.0)
    assert actions == [Deliver(5, ((1, 0, 1, 0, 8),), "bytes"), Release("payload 1")]
    assert core.expects(arrived.message) == (None,)
    assert core.handle(arrived, 0.0) == []
    actions = core.handle(value(push.request, (1, 1, 8), (0, 1, 16)), 0.0)
    assert actions[0] == Deliver(5, ((0, 0, 1, 8, 16),), "bytes")
    assert actions[-1] == Complete(5)


def test_values_of_an_old_request_never_acknowledge_a_new_push():
    core = running_worker()
    (pull,) = sent(core.handle(PullCall(4, ((0, 0),), 9.0), 0.0))
    core.handle(value(pull.request, (0, 0, 8)), 0.0)
    core.handle(PushCall(5, entries(0), 9.0, want_value=True), 0.0)
    late = value(pull.request, (0, 0, 8))
    assert core.expects(late.message) == (None,)
    assert core.handle(late, 0.0) == []


def test_a_pull_completes_with_its_last_value():
    core = running_worker(num_servers=2)
    pulls = sent(core.handle(PullCall(5, ((0, 0), (1, 0)), 9.0), 0.0), Pull)
    first = core.handle(value(pulls[0].request, (0, 3, 8)), 0.0)
    assert [type(each) for each in first] == [Deliver]
    second = core.handle(value(pulls[1].request, (1, 3, 8), link=FIRST_SERVER + 1), 0.0)
    assert [type(each) for each in second] == [Deliver, Complete]


def test_rows_release_their_question():
    core = running_worker()
    (ask,) = sent(core.handle(RowsCall(5, 0, 0, "ids", 16, 2, 9.0), 0.0))
    rows = Rows(ask.request, 1, 0, 0, 1, 2, 32)
    assert core.expects(rows) == (5,)
    actions = core.handle(Received(FIRST_SERVER, rows, "rows"), 0.0)
    assert actions == [Deliver(5, ((0, 0, 1, 0, 32),), "rows"), Release("ids"), Complete(5)]
    assert core.expects(rows) == (None,)


def test_an_init_holds_its_slots_pushes_back():
    core = running_worker()
    entry = InitEntry(0, 0, DType.FLOAT32, 2, 1, Layout.DENSE, Consistency.SYNC, 8)
    (init,) = sent(core.handle(InitCall(5, 0, ((entry, "value"),), 9.0), 0.0), Init)
    assert core.handle(PushCall(6, entries(0), 9.0), 0.0) == []
    acknowledged = Ack(init.request, 1, (SlotRound(0, 0, 0),))
    actions = core.handle(Received(FIRST_SERVER, acknowledged), 0.0)
    assert actions[:2] == [Release("value"), Complete(5)]
    assert sent(actions, Push)[0].round == 0


def test_a_refused_push_fails_its_call_and_keeps_its_number():
    core = running_worker()
    (push,) = sent(core.handle(PushCall(5, entries(0, 1), 9.0), 0.0))
    core.handle(PullCall(6, ((0, 0),), 9.0), 0.0)
    core.handle(PullCall(7, ((1, 0),), 9.0), 0.0)
    fault = Fault(FaultCode.WRONG_STATE, "no optimizer", push.request, (SlotRound(0, 0, 0),))
    actions = core.handle(Received(FIRST_SERVER, fault), 0.0)
    assert {each.call for each in of(actions, Fail)} == {5, 6}
    assert all(isinstance(each.error, StateError) for each in of(actions, Fail))
    assert of(actions, Release) == [Release("payload 0")]
    (again,) = sent(core.handle(PushCall(8, entries(0), 9.0), 0.0), Push)
    assert again.round == 0


def test_a_refused_pull_fails_with_the_servers_words():
    core = running_worker()
    (ask,) = sent(core.handle(RowsCall(5, 0, 0, "ids", 16, 2, 9.0), 0.0))
    fault = Fault(FaultCode.BAD_REQUEST, "row 7 is out of range", ask.request)
    actions = core.handle(Received(FIRST_SERVER, fault), 0.0)
    (fail,) = of(actions, Fail)
    assert isinstance(fail.error, ConfigError)
    assert "row 7" in str(fail.error)
    assert of(actions, Release) == [Release("ids")]


def test_a_fault_of_no_request_is_logged():
    actions = running_worker().handle(
        Received(FIRST_SERVER, Fault(FaultCode.INTERNAL, "out of memory", None)), 0.0
    )
    assert of(actions, Log)


def test_a_refused_command_fails_and_lets_the_next_pushes_go():
    core = running_worker()
    call = CommandCall(5, 0, CommandKind.SET_OPTIMIZER, {}, 9.0)
    (command,) = sent(core.handle(call, 0.0))
    assert core.handle(PushCall(6, entries(0), 9.0), 0.0) == []
    fault = Fault(FaultCode.BAD_REQUEST, "no such optimizer", command.number)
    actions = core.handle(Received(FIRST_SERVER, fault), 0.0)
    assert of(actions, Fail)[0].call == 5
    assert sent(actions, Push)


def test_answers_of_a_command_are_held_until_it_is_complete():
    core = running_worker(num_servers=2)
    call = CommandCall(5, 0, CommandKind.SAVE_STATE, {}, 9.0, {0: ("piece", 3)})
    first, second = sent(core.handle(call, 0.0))
    assert (first.payload_bytes, second.payload_bytes) == (3, 0)
    done = CommandDone(first.number, {"a": 1}, 4)
    actions = core.handle(Received(FIRST_SERVER, done, "state 0"), 0.0)
    assert actions == [Hold("state 0"), Release("piece")]
    done = CommandDone(second.number, {"b": 1}, 4)
    actions = core.handle(Received(FIRST_SERVER + 1, done, "state 1"), 0.0)
    (complete,) = of(actions, Complete)
    assert complete.result == {0: ({"a": 1}, "state 0"), 1: ({"b": 1}, "state 1")}
    assert of(actions, Release) == [Release("state 0"), Release("state 1")]
    assert actions.index(complete) < actions.index(Release("state 0"))


def resume(core, together, *standing):
    (ask,) = sent(core.handle(ResumeCall(5, (0, 1), 9.0, together), 0.0))
    found = tuple(RoundEntry(key, 0, number, number) for key, number in standing)
    (complete,) = core.handle(Received(FIRST_SERVER, RoundsReply(ask.request, 1, found)), 0.0)
    return complete.result


def test_a_replacement_computes_a_half_delivered_step_again():
    core = running_worker()
    assert resume(core, True, (0, 6), (1, 5)) == {0: 5, 1: 5}
    (push,) = sent(core.handle(PushCall(6, entries(0, 1), 9.0), 0.0))
    assert [push.round + entry.lead for entry in push.entries] == [5, 5]


def test_keys_of_their_own_pace_resume_each_for_itself():
    assert resume(running_worker(), False, (0, 6), (1, 2)) == {0: 6, 1: 2}


def test_a_key_without_a_value_resumes_from_nothing():
    assert resume(running_worker(), True, (0, 6)) == {0: 6, 1: 0}


def test_one_resumes_before_the_first_push():
    core = running_worker()
    core.handle(PushCall(4, entries(0), 9.0), 0.0)
    (fail,) = core.handle(ResumeCall(5, (0,), 9.0), 0.0)
    assert isinstance(fail.error, StateError)
