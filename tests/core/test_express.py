"""What takes the short way leaves the state that the ordinary way leaves, or changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.nodes import initialise, of, push, running_server, running_worker, sent

from bireme.core.actions import Complete, Deliver, Release
from bireme.core.bunches import Bunch
from bireme.core.calls import PushCall
from bireme.core.events import Received
from bireme.errors import StateError
from bireme.sim.values import FloatValues
from bireme.types.choices import Consistency
from bireme.wire.messages import Fault, Value, ValueEntry

KEYS = (0, 1, 2)


def again(core, event, now_s=0.0):
    message = event.message
    numbers = message.request, message.round
    return core.push_again(event.link, message, numbers, event.payload, now_s)


def state(core):
    """Everything that a server knows of its slots, apart from how they are grouped."""
    core._shelf.single_slots()
    return {
        key: (
            slot.ledger.version,
            getattr(slot.ledger, "seen", 0),
            slot.present,
            slot.mean and slot.present,
            list(slot.weights),
            dict(slot.pushes),
            dict(slot.pulls),
            slot.cell.value,
            {node: list(part) for node, part in slot.partials.items()},
            slot.opened_s,
        )
        for key, slot in core._shelf._slots.items()
    } | {"weights": dict(core._shelf._crew.weights)}


@pytest.fixture
def core():
    core = running_server(2)
    initialise(core, KEYS)
    return core


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.integers(-1, 2),
            st.sampled_from([(0,), (1,), KEYS]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=24,
    )
)
def test_a_server_answers_and_stands_as_by_the_ordinary_way(steps):
    one, other = running_server(2), running_server(2)
    for core in (one, other):
        initialise(core, KEYS)
    next_round = {(rank, keys): 0 for rank in (0, 1) for keys in ((0,), (1,), KEYS)}
    for request, (rank, ahead, keys, want_value, mean) in enumerate(steps):
        number = max(0, next_round[rank, keys] + min(ahead, 0) if ahead < 1 else ahead - 1)
        event = push(rank, number, 1.5 + request, request, keys, want_value=want_value, mean=mean)
        before = state(one) if request % 7 == 6 else None
        if before is not None:
            state(other)
        actions = again(one, event, float(request))
        if actions is None:
            assert before is None or state(one) == before
            actions = one.handle(event, float(request))
        assert sent(actions) == sent(other.handle(event, float(request)))
        next_round[rank, keys] += 1
    assert state(one) == state(other)


def test_the_next_push_is_taken_and_the_last_answers_all(core):
    assert again(core, push(0, 0, 1.0, 5, want_value=True)) == []
    answers = sent(again(core, push(1, 0, 2.0, 6, want_value=True)))
    assert [(each.request, each.version) for each in answers] == [(5, 1), (6, 1)]


def declined(core, event):
    before = state(core)
    assert again(core, event) is None
    assert state(core) == before


def test_duplicates_gaps_and_strangers_are_declined(core):
    again(core, push(0, 0, 1.0, 5))
    declined(core, push(0, 0, 1.0, 5))
    declined(core, push(1, 1, 1.0, 5))
    declined(core, push(1, 0, 1.0, 5, (7,)))
    declined(core, push(1, 0, 1.0, 5, view=2))
    event = push(1, 0, 1.0, 5)
    declined(core, Received(10, event.message, event.payload))
    declined(core, Received(99, event.message, event.payload))
    assert sent(again(core, event))


def test_a_mean_among_sums_is_declined_and_then_refused(core):
    again(core, push(0, 0, 1.0, 5))
    event = push(1, 0, 1.0, 6, mean=True)
    declined(core, event)
    assert isinstance(sent(core.handle(event, 0.0))[0], Fault)
    declined(core, push(1, 0, 1.0, 7))


def test_a_push_that_needs_an_optimizer_is_declined():
    core = running_server(2)
    initialise(core, consistency=Consistency.ASYNC)
    declined(core, push(0, 0, 1.0))


def test_after_a_failed_update_nothing_is_taken():
    class Failing(FloatValues):
        def finish(self, *_):
            raise RuntimeError("defect")

    core = running_server(1, Failing())
    initialise(core)
    actions = again(core, push(0, 0, 1.0))
    assert "defect" in sent(actions)[-1].reason
    assert again(core, push(0, 0, 1.0)) is None


# The worker's side.


def worker_with_bunch(num_servers=1):
    core = running_worker(num_servers)
    bunch = Bunch(0, [(0, 0, 8)] if num_servers > 1 else [(0, 0, 8), (1, 0, 8)])
    return core, bunch


def call(bunch, number=2, payload="payload", **more):
    return PushCall(number, (), 10.0, want_value=True, bunches=((bunch, payload),), **more)


def answer(bunch, request, version=1):
    entries = tuple(
        ValueEntry(*slot, 0, size) for slot, size in zip(bunch.slots, bunch.sizes, strict=True)
    )
    return Value(request, 1, version, entries)


def cut(handle, sizes):
    return [(handle, size) for size in sizes]


def warmed():
    """Return a worker that has pushed its bunch once by the ordinary way."""
    core, bunch = worker_with_bunch()
    (message,) = sent(core.handle(call(bunch), 0.0))
    core.handle(Received(2, answer(bunch, message.request), "values"), 0.0)
    return core, bunch


def test_the_first_push_takes_the_ordinary_way():
    core, bunch = worker_with_bunch()
    assert core.express.push(call(bunch), 0.0) is None


def test_a_push_and_its_answer_do_as_by_the_ordinary_way():
    core, bunch = warmed()
    other, its_bunch = warmed()
    link, request = core.express.push(call(bunch, 3), 1.0)
    (action,) = other.handle(call(its_bunch, 3), 1.0)
    assert (link, request.message(1)) == (action.link, action.message)
    assert core.next_deadline_s() == other.next_deadline_s()
    value = answer(bunch, request.number, 2)
    assert core.expects(value) == other.expects(value) == (3, 3)
    actions = core.express.value(value, request.number, "values", 1.5)
    expected = other.handle(Received(2, value, "values"), 1.5)
    assert [type(each) for each in actions] == [Deliver, Release, Complete]
    assert actions[1:] == expected[1:]
    assert (actions[0].call, actions[0].payload) == (expected[0].call, expected[0].payload)
    assert [lane.number for lane in bunch.lanes] == [lane.number for lane in its_bunch.lanes]
    assert core._desk.requests == other._desk.requests == {}
    assert core.next_deadline_s() == other.next_deadline_s()


def test_one_push_at_a_time():
    core, bunch = warmed()
    core.express.push(call(bunch, 3), 0.0)
    assert core.express.push(call(bunch, 4), 0.0) is None


def test_an_answer_counts_once():
    core, bunch = warmed()
    _, request = core.express.push(call(bunch, 3), 0.0)
    value = answer(bunch, request.number, 2)
    assert core.express.value(value, request.number, "values", 0.0)
    assert core.express.value(value, request.number, "values", 0.0) is None
    assert core.handle(Received(2, value, "values"), 0.0) == []


def test_what_waits_behind_a_push_leaves_with_its_answer():
    core, bunch = warmed()
    _, request = core.express.push(call(bunch, 3), 0.0)
    core._desk.lanes._cut = cut
    assert sent(core.handle(call(bunch, 4), 0.0)) == []
    actions = core.express.value(answer(bunch, request.number, 2), request.number, "values", 0.0)
    (message,) = sent(actions)
    assert message.round == 2


def test_answers_of_some_slots_and_of_strangers_are_declined():
    core, bunch = warmed()
    _, request = core.express.push(call(bunch, 3), 0.0)
    some = Value(request.number, 1, 2, answer(bunch, request.number).entries[:1])
    assert core.express.value(some, request.number, "values", 0.0) is None
    assert core.express.value(answer(bunch, 77), 77, "values", 0.0) is None


def test_an_answer_after_the_limit_is_left_to_the_ordinary_way():
    core, bunch = warmed()
    _, request = core.express.push(call(bunch, 3), 0.0)
    core._desk.fail(request.call, StateError("late"))
    value = answer(bunch, request.number, 2)
    assert core.express.value(value, request.number, "values", 20.0) is None
    assert of(core.handle(Received(2, value, "values"), 20.0), Release)


def test_a_weight_that_is_none_is_left_to_be_refused():
    core, bunch = warmed()
    assert core.express.push(call(bunch, 3, weight=-1.0), 0.0) is None
