"""A server that takes slots for one gives the answers of a server that does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.nodes import initialise, push, running_server, sent

from bireme.core import groups
from bireme.core.actions import Hold, Release
from bireme.core.events import Received
from bireme.core.groups import Group
from bireme.sim.values import FloatValues, unpack
from bireme.types.choices import Consistency
from bireme.wire.messages import (
    Ack,
    Command,
    CommandKind,
    Fault,
    Pull,
    PullEntry,
    PullRows,
    Push,
    Rounds,
    SlotRound,
    StatusRequest,
    Value,
)

KEYS = (0, 1, 2)


@pytest.fixture
def values():
    return FloatValues()


@pytest.fixture
def core(values):
    core = running_server(2, values)
    initialise(core, KEYS)
    return core


def together(core, number, request=9, **more):
    """Complete one round of all keys: 1 from rank 0, 2 from rank 1."""
    answers = []
    for rank in (0, 1):
        answers += core.handle(push(rank, number, 1.0 + rank, request, KEYS, **more), 0.0)
    return answers


def group_of(core, key=0):
    return core._shelf._slots[key, 0].group


def formed(core):
    for number in range(2):
        together(core, number)
    assert isinstance(group_of(core), Group)
    return 2


def test_what_is_pushed_together_becomes_one(core, values):
    together(core, 0)
    assert group_of(core) is None
    together(core, 1)
    assert group_of(core).members == tuple(core._shelf._slots[key, 0] for key in KEYS)
    actions = together(core, 2, request=5)
    assert sent(actions) == [Ack(5, 1, ())] * 2
    answers = sent(together(core, 3, want_value=True))
    assert [each.version for each in answers] == [4, 4]
    assert [(e.key_id, e.lead) for e in answers[0].entries] == [(key, 0) for key in KEYS]
    assert values.num_joined == 1


def test_its_members_may_be_ahead_of_each_other(core):
    for number in range(3):
        for rank in (0, 1):
            core.handle(push(rank, number, 1.0, 9, (1,)), 0.0)
    entries = tuple(
        groups.PushEntry(key, 0, lead, 8) for key, lead in zip(KEYS, (0, 3, 0), strict=True)
    )
    for number in range(4):
        for rank in (0, 1):
            event = push(rank, number, 1.0, 9, KEYS, want_value=True)
            message = event.message
            message = Push(
                message.request, 1, rank, rank, rank + 1, 1.0, False, True, number, 0, entries
            )
            answers = sent(core.handle(Received(event.link, message, event.payload), 0.0), Value)
    assert group_of(core).leads == (0, 3, 0)
    assert answers[0].version == 4
    assert [entry.lead for entry in answers[0].entries] == [0, 3, 0]
    core.handle(push(0, 4, 1.0, 9, (0,)), 0.0)
    assert [core._shelf._slots[key, 0].ledger.version for key in KEYS] == [4, 7, 4]


def one_pushed(core, number):
    return core.handle(push(0, number, 5.0, 11, (1,)), 0.0)


def rows_pulled(core, number):
    return core.handle(Received(10, PullRows(12, 1, 0, 0, number, 0)), 0.0)


def some_pulled(core, number):
    entries = (PullEntry(0, 0, 0), PullEntry(2, 0, 0))
    return core.handle(Received(10, Pull(12, 1, number, 0, entries)), 0.0)


def at_other_versions(core, number):
    entries = (PullEntry(0, 0, 0), PullEntry(1, 0, 1), PullEntry(2, 0, 0))
    return core.handle(Received(10, Pull(12, 1, number, 0, entries)), 0.0)


def optimizer_set(core, number):
    body = {"rate": 1.0}
    return core.handle(Received(10, Command(13, 1, 0, CommandKind.SET_OPTIMIZER, body)), 0.0)


def asked_for_rounds(core, number):
    return core.handle(Received(10, Rounds(14, 1)), 0.0)


def asked_for_status(core, number):
    return core.handle(Received(10, StatusRequest(15)), 0.0)


@pytest.mark.parametrize(
    "touch",
    [
        one_pushed,
        rows_pulled,
        some_pulled,
        at_other_versions,
        optimizer_set,
        asked_for_rounds,
        asked_for_status,
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_whatever_touches_a_part_ends_it(core, touch, is_open):
    number = formed(core)
    if is_open:
        core.handle(push(1, number, 2.0, 9, KEYS, want_value=True), 0.0)
    touch(core, number)
    assert group_of(core) is None
    if not is_open:
        core.handle(push(1, number, 2.0, 9, KEYS, want_value=True), 0.0)
    answers = sent(core.handle(push(0, number, 1.0, 9, KEYS, want_value=True), 0.0), Value)
    found = {entry.key_id for each in answers if each.request == 9 for entry in each.entries}
    assert found == set(KEYS)
    values = core._values.cells
    assert values[0, 0].value == [6.0 if touch is optimizer_set else 3.0]
    assert values[1, 0].value[0] == {one_pushed: 7.0, optimizer_set: 6.0}.get(touch, 3.0)


def test_a_pull_of_all_keeps_it(core):
    number = formed(core)
    group = group_of(core)
    entries = tuple(PullEntry(key, 0, 0) for key in reversed(KEYS))
    for _ in range(2):
        pull = Received(10, Pull(12, 1, number, 0, entries))
        (value,) = sent(core.handle(pull, 0.0))
        assert {entry.key_id for entry in value.entries} == set(KEYS)
    late = Received(11, Pull(13, 1, number + 1, 0, entries))
    assert core.handle(late, 0.0) == []
    answers = sent(together(core, number), Value)
    assert [(each.request, each.version) for each in answers] == [(13, number + 1)]
    assert group_of(core) is group


def test_a_pull_that_waits_survives_its_end(core):
    number = formed(core)
    entries = tuple(PullEntry(key, 0, 0) for key in KEYS)
    core.handle(Received(11, Pull(13, 1, number + 1, 0, entries)), 0.0)
    one_pushed(core, number)
    assert group_of(core) is None
    core.handle(push(0, number, 1.0, 9, (0, 2)), 0.0)
    answers = sent(core.handle(push(1, number, 2.0, 9, KEYS), 0.0), Value)
    assert {entry.key_id for each in answers for entry in each.entries} == set(KEYS)


def test_duplicates_gaps_and_mixed_modes_are_answered_for_all_of_it(core, values):
    number = formed(core)
    first = push(0, number, 1.0, 20, KEYS)
    core.handle(first, 0.0)
    assert core.handle(first, 0.0) == []
    assert sent(core.handle(push(1, number - 1, 1.0, 21, KEYS), 0.0)) == [Ack(21, 1, ())]
    rounds = tuple(SlotRound(key, 0, number + 1) for key in KEYS)
    (gap,) = sent(core.handle(push(1, number + 1, 1.0, 22, KEYS), 0.0), Fault)
    assert gap.entries == rounds
    (mixed,) = sent(core.handle(push(1, number, 1.0, 23, KEYS, mean=True), 0.0), Fault)
    assert [entry.round for entry in mixed.entries] == [number] * 3
    taken = values.num_taken
    refused = sent(core.handle(push(1, number, 1.0, 23, KEYS, mean=False), 0.0), Fault)
    assert "refused before" in refused[0].text
    assert values.num_taken == taken
    one_pushed(core, number)
    assert group_of(core) is None
    refused = sent(core.handle(push(1, number, 1.0, 23, (0,)), 0.0), Fault)
    assert "refused before" in refused[0].text


def test_changing_habits_form_fewer_and_fewer_groups(core, values):
    for number in range(400):
        together(core, 2 * number)
        for key in KEYS:
            for rank in (0, 1):
                core.handle(push(rank, 2 * number + 1, 1.0, 9, (key,)), 0.0)
    assert 2 <= values.num_joined <= 10


def test_a_group_that_lasted_is_formed_again_at_once(core, values):
    for number in range(20):
        together(core, number)
    asked_for_status(core, 20)
    for number in range(20, 23):
        together(core, number)
    assert values.num_joined == 2
    assert group_of(core) is not None


def test_what_waits_for_first_values_is_no_group(values):
    core = running_server(1, values)
    event = push(0, 0, 1.0, 9, KEYS)
    for _ in range(5):
        actions = core.handle(event, 0.0)
        assert all(isinstance(each, Hold) for each in actions)
    actions = initialise(core, KEYS)
    assert Release(event.payload) in actions
    assert values.num_joined == 0


def test_asynchronous_slots_are_no_group(values):
    core = running_server(2, values)
    initialise(core, KEYS, consistency=Consistency.ASYNC)
    optimizer_set(core, 0)
    for number in range(5):
        together(core, number)
    assert values.num_joined == 0


def test_what_is_known_is_bounded(core, values, monkeypatch):
    monkeypatch.setattr(groups, "_MOST_PLANS", 8)
    number = formed(core)
    for request in range(50):
        keys = KEYS[:2] if request % 2 else KEYS
        entries = tuple(PullEntry(key, 0, 0) for key in keys)
        core.handle(Received(10, Pull(request, 1, number, 0, entries)), 0.0)
        together(core, number + request, 100 + request)
        known = core._shelf._groups
        assert max(len(known._known), len(known._plans), len(known._pulls)) <= 8


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([(0, 1, 2), (0, 1, 2), (0, 1, 2), (2, 1, 0), (0, 1), (2,)]),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_sequence_of_pushes_and_pulls_shows_a_difference(steps):
    plain, grouped = FloatValues(), FloatValues()
    plain.join = lambda cells: None
    found = []
    for values in (plain, grouped):
        core = running_server(2, values)
        initialise(core, KEYS)
        found.append([_answers(core, step, number) for number, step in enumerate(steps)])
        found[-1].append({slot: cell.value for slot, cell in values.cells.items()})
    assert found[0] == found[1]


def _answers(core, step, request):
    """Return, by link, request and key, what one step is answered with."""
    rank, keys, is_pull, want_value = step
    expected = [core._shelf._slots[key, 0] for key in keys]
    expected = [(slot.group or slot, slot) for slot in expected]
    numbers = []
    for whole, slot in expected:
        lead = whole.leads[whole.members.index(slot)] if whole is not slot else 0
        numbers.append(whole.ledger.expected(rank) + lead)
    first = min(numbers)
    if is_pull:
        entries = tuple(
            PullEntry(key, 0, number - first) for key, number in zip(keys, numbers, strict=True)
        )
        event = Received(10 + rank, Pull(request, 1, first, 0, entries))
    else:
        entries = tuple(
            groups.PushEntry(key, 0, number - first, 8)
            for key, number in zip(keys, numbers, strict=True)
        )
        whole = push(rank, first, 1.0 + request, request, keys, want_value=want_value)
        message = Push(request, 1, rank, rank, rank + 1, 1.0, False, want_value, first, 0, entries)
        event = Received(10 + rank, message, whole.payload)
    told = set()
    for action in core.handle(event, 0.0):
        message = action.message
        if isinstance(message, Value):
            numbers = unpack(b"".join(action.payload))
            for entry, number in zip(message.entries, numbers, strict=True):
                where = (entry.key_id, message.version + entry.lead, number)
                told.add((action.link, message.request, *where))
        elif isinstance(message, Ack):
            told.add((action.link, message.request))
        else:
            told.add((action.link, type(message).__name__))
    return told
