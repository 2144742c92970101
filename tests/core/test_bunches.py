"""A bunch is one message for as long as nothing befalls its slots one by one."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.nodes import FIRST_SERVER, RAW, TO_SCHEDULER, entries, of, running_worker, sent

from bireme.core.actions import Complete, Deliver, Fail, Release
from bireme.core.bunches import Bunch, Dealer
from bireme.core.calls import CommandCall, LeaveCall, PullCall, PushCall
from bireme.core.events import Received, Tick
from bireme.errors import LocalProtocolError, UnknownKeyError
from bireme.wire.messages import (
    Abort,
    Ack,
    Command,
    CommandDone,
    CommandKind,
    Fault,
    FaultCode,
    Pull,
    PullEntry,
    Push,
    Rounds,
    SlotRound,
    Stale,
    Value,
    ValueEntry,
    ViewChange,
)

SLOTS = [(0, 0, 8), (1, 0, 16)]


def cut(handle, sizes):
    return [f"{handle} {size}" for size in sizes]


@pytest.fixture
def core():
    core = running_worker()
    core._desk.lanes._cut = cut
    return core


@pytest.fixture
def bunch():
    return Bunch(0, SLOTS)


def push(core, bunch, call=5, want_value=True, handle="all", **more):
    pushed = PushCall(call, (), 10.0, want_value=want_value, bunches=((bunch, handle),), **more)
    return core.handle(pushed, 0.0)


def value(request, version, *keys, sizes=(8, 16)):
    found = tuple(ValueEntry(key, 0, 0, sizes[key]) for key in keys)
    return Received(FIRST_SERVER, Value(request, 1, version, found), "bytes")


def test_it_is_one_message_and_one_answer(core, bunch):
    for number in range(3):
        actions = push(core, bunch, call=10 + number, priority=4)
        (message,) = sent(actions, Push)
        assert (message.round, message.entries is bunch.entries) == (number, True)
        assert (actions[0].payload, actions[0].priority) == (("all",), 4)
        answer = value(message.request, number + 1, 0, 1)
        assert core.expects(answer.message) == (10 + number,) * 2
        assert core.handle(answer, 0.0) == [
            Deliver(10 + number, (), "bytes", bunch, answer.message),
            Release("all"),
            Complete(10 + number),
        ]
        assert core.handle(answer, 0.0) == []


def test_an_acknowledgement_of_all(core, bunch):
    (message,) = sent(push(core, bunch, want_value=False), Push)
    ack = Received(FIRST_SERVER, Ack(message.request, 1, ()))
    assert core.handle(ack, 0.0) == [Release("all"), Complete(5)]
    named = tuple(SlotRound(key, 0, 1) for key in (0, 1))
    (message,) = sent(push(core, bunch, call=6, want_value=False), Push)
    actions = core.handle(Received(FIRST_SERVER, Ack(message.request, 1, named)), 0.0)
    assert actions == [Release("all 8"), Release("all 16"), Complete(6)]


def test_answers_for_some_slots(core, bunch):
    (message,) = sent(push(core, bunch), Push)
    actions = core.handle(value(message.request, 1, 1), 0.0)
    assert actions == [Deliver(5, ((1, 0, 1, 0, 16),), "bytes"), Release("all 16")]
    request = next(iter(core._desk.requests.values()))
    assert [entry.key_id for entry in request.message(1).entries] == [0]
    assert request.payload() == ("all 8",)
    assert of(core.handle(value(message.request, 1, 0), 0.0), Complete) == [Complete(5)]
    (again,) = sent(push(core, bunch, call=6), Push)
    assert again.entries is bunch.entries


def test_a_push_that_has_to_wait_goes_slot_by_slot(core, bunch):
    (first,) = sent(core.handle(PushCall(5, entries(1, size=16), 10.0), 0.0), Push)
    (second,) = sent(push(core, bunch, call=6), Push)
    assert [(entry.key_id, entry.lead) for entry in second.entries] == [(0, 0)]
    actions = core.handle(Received(FIRST_SERVER, Ack(first.request, 1, ())), 0.0)
    (third,) = sent(actions, Push)
    assert (third.round, [entry.key_id for entry in third.entries]) == (1, [1])
    core.handle(value(second.request, 1, 0), 0.0)
    assert Complete(6) in core.handle(value(third.request, 2, 1), 0.0)
    (uneven,) = sent(push(core, bunch, call=7), Push)
    assert (uneven.round, [entry.lead for entry in uneven.entries]) == (1, [0, 1])


def test_what_waits_behind_it_follows(core, bunch):
    (first,) = sent(push(core, bunch), Push)
    assert sent(core.handle(PushCall(6, entries(0), 10.0), 0.0)) == []
    (pull,) = sent(core.handle(PullCall(7, ((0, 0), (1, 0)), 10.0), 0.0), Pull)
    assert [pull.min_version + entry.lead for entry in pull.entries] == [2, 1]
    command = CommandCall(8, 0, CommandKind.SAVE_STATE, {}, 10.0)
    assert sent(core.handle(command, 0.0)) == []
    assert sent(push(core, bunch, call=9)) == []
    actions = core.handle(value(first.request, 1, 0, 1), 0.0)
    (second,) = sent(actions, Push)
    assert (second.round, [entry.key_id for entry in second.entries]) == (1, [0])
    ack = Received(FIRST_SERVER, Ack(second.request, 1, ()))
    (fence,) = sent(core.handle(ack, 0.0), Command)
    done = Received(FIRST_SERVER, CommandDone(fence.number))
    last = sent(core.handle(done, 0.0), Push)
    assert {entry.key_id for each in last for entry in each.entries} == {0, 1}


def test_it_is_sent_again_under_a_new_view(core, bunch):
    (message,) = sent(push(core, bunch), Push)
    core.handle(Received(FIRST_SERVER, Stale(2, message.request)), 0.0)
    nodes = tuple(core._member.nodes.values())
    (again,) = sent(core.handle(Received(TO_SCHEDULER, ViewChange(2, nodes)), 0.0), Push)
    assert (again.view, again.entries is bunch.entries) == (2, True)


def test_doubt_is_settled_by_a_question(core, bunch):
    assert sent(push(core, bunch), Push)
    (question,) = sent(core.handle(Tick(), 8.0), Rounds)
    assert set(question.key_ids) == {0, 1}


def test_a_refusal_fails_the_call_and_releases_every_part(core, bunch):
    (message,) = sent(push(core, bunch), Push)
    fault = Fault(FaultCode.BAD_REQUEST, "no", message.request)
    actions = core.handle(Received(FIRST_SERVER, fault), 0.0)
    assert of(actions, Release) == [Release("all 8"), Release("all 16")]
    assert [each.call for each in of(actions, Fail)] == [5]
    (again,) = sent(push(core, bunch, call=6), Push)
    assert again.round == 0


@pytest.mark.parametrize("is_sent", [True, False])
def test_the_end_of_the_job_releases_it(core, bunch, is_sent):
    if not is_sent:
        core.handle(PushCall(4, entries(0), 10.0), 0.0)
    push(core, bunch)
    actions = core.handle(Received(TO_SCHEDULER, Abort(None, "h", "over", 1)), 0.0)
    assert {each.payload for each in of(actions, Release)} >= {"all 8", "all 16"}


def test_leaving_lets_it_go_on(core, bunch):
    push(core, bunch)
    actions = core.handle(LeaveCall(9, 10.0), 0.0)
    assert [each.call for each in of(actions, Fail)] == [5]


def test_unknown_slots_and_workers_that_cannot_cut():
    core = running_worker()
    (fail,) = push(core, Bunch(0, [(7, 0, 8)]))
    assert isinstance(fail.error, UnknownKeyError)
    (message,) = sent(push(core, Bunch(0, SLOTS), call=6), Push)
    with pytest.raises(LocalProtocolError, match="cut"):
        core.handle(value(message.request, 1, 1), 0.0)


def test_answers_are_compared_with_all_of_it(bunch):
    right = (ValueEntry(0, 0, 3, 8), ValueEntry(1, 0, 0, 16))
    assert bunch.answered_by(right)
    assert bunch.answered_by(right)
    assert not bunch.answered_by(right[:1])
    assert not bunch.answered_by(right[::-1])
    assert not bunch.answered_by((right[0], ValueEntry(1, 0, 0, 8)))
    items = list(bunch.items("x", cut))
    assert items == [(0, 0, "x 8", 8, *RAW), (1, 0, "x 16", 16, *RAW)]


def pull(core, bunch, call=5, **more):
    return core.handle(PullCall(call, (), 10.0, bunches=(bunch,), **more), 0.0)


def test_a_pull_is_one_message_and_one_answer(core, bunch):
    for number in range(2):
        (pushed,) = sent(push(core, bunch, call=10 + number, want_value=False), Push)
        (message,) = sent(pull(core, bunch, call=20 + number, priority=3), Pull)
        assert (message.min_version, message.priority) == (number + 1, 3)
        assert message.entries is bunch.pulled
        core.handle(Received(FIRST_SERVER, Ack(pushed.request, 1, ())), 0.0)
        answer = value(message.request, number + 1, 0, 1)
        assert core.expects(answer.message) == (20 + number,) * 2
        assert core.handle(answer, 0.0) == [
            Deliver(20 + number, (), "bytes", bunch, answer.message),
            Complete(20 + number),
        ]
        assert core.handle(answer, 0.0) == []


def test_a_pull_that_is_answered_in_parts(core, bunch):
    (message,) = sent(pull(core, bunch), Pull)
    assert core.handle(value(message.request, 0, 1), 0.0) == [
        Deliver(5, ((1, 0, 0, 0, 16),), "bytes")
    ]
    request = next(iter(core._desk.requests.values()))
    assert request.message(1).entries == (PullEntry(0, 0, 0),)
    assert Complete(5) in core.handle(value(message.request, 0, 0), 0.0)


def test_slots_that_do_not_stand_alike_are_pulled_at_their_own_versions(core, bunch):
    core.handle(PushCall(5, entries(1, size=16), 10.0), 0.0)
    (message,) = sent(pull(core, bunch, call=6), Pull)
    assert [message.min_version + entry.lead for entry in message.entries] == [0, 1]
    core.handle(value(message.request, 0, 0), 0.0)
    assert Complete(6) in core.handle(value(message.request, 1, 1), 0.0)


def test_a_pull_of_a_slot_that_was_not_declared(core):
    assert isinstance(pull(core, Bunch(0, [(9, 0, 8)]))[0].error, UnknownKeyError)


def dealt(bundle_bytes, sizes):
    """The sizes in each message."""
    dealer = Dealer(bundle_bytes)
    messages = {}
    for size in sizes:
        messages.setdefault(dealer.place(size), []).append(size)
    return [messages[number] for number in range(len(messages))]


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ([4, 32, 4, 4, 16, 4, 12], [[4, 4, 4, 4], [32], [16], [12]]),
        ([10, 10, 10], [[10, 10], [10]]),
        ([0, 30, 0, 0], [[0, 0, 0], [30]]),
        ([12, 12, 1], [[12, 12], [1]]),
        ([13, 12, 12], [[13], [12, 12]]),
    ],
)
def test_large_slots_travel_alone_and_do_not_part_the_small_ones(sizes, messages):
    assert dealt(24, sizes) == messages


@given(st.lists(st.integers(0, 40)), st.integers(0, 30))
def test_only_a_slot_alone_exceeds_a_bundle(sizes, bundle_bytes):
    messages = dealt(bundle_bytes, sizes)
    assert sorted(size for message in messages for size in message) == sorted(sizes)
    assert all(len(message) == 1 or sum(message) <= bundle_bytes for message in messages)
    # Two neighbours of small ones would not have fitted into one message.
    small = [message for message in messages if 2 * max(message) <= bundle_bytes]
    assert all(sum(one) + two[0] > bundle_bytes for one, two in pairwise(small))
