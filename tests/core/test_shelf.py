import pytest
from tests.core.nodes import initialise, of, push, running_server, sent

from bireme.core.actions import Hold, Release, Send
from bireme.core.events import Received
from bireme.sim.values import FloatValues, pack, unpack
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import worker
from bireme.wire.messages import (
    Ack,
    Attach,
    Fault,
    FaultCode,
    Init,
    InitEntry,
    JointPush,
    Pull,
    PullEntry,
    PullRows,
    Push,
    PushEntry,
    Rounds,
    RoundsReply,
    Rows,
    SlotRound,
    Value,
)


@pytest.fixture
def values():
    return FloatValues()


@pytest.fixture
def core(values):
    return running_server(2, values)


def test_a_round_is_answered_when_it_is_complete(core, values):
    initialise(core, (0, 1))
    assert sent(core.handle(push(0, 0, 1.0, request=3, key_ids=(0, 1)), 0.0)) == []
    actions = core.handle(push(1, 0, 2.0, request=4, key_ids=(0, 1)), 0.0)
    assert [(each.link, each.message.request) for each in of(actions, Send)] == [(10, 3), (11, 4)]
    assert [len(each.entries) for each in sent(actions, Ack)] == [2, 2]
    assert values.cells[0, 0].value == [3.0]


def test_a_duplicate_changes_nothing_and_is_answered_again(core, values):
    initialise(core)
    core.handle(push(0, 0, 1.0, request=3), 0.0)
    assert sent(core.handle(push(0, 0, 1.0, request=3), 0.0)) == []
    core.handle(push(1, 0, 2.0), 0.0)
    actions = core.handle(push(0, 0, 1.0, request=3, want_value=True), 0.0)
    (value,) = sent(actions, Value)
    assert value.request == 3
    assert unpack(actions[0].payload[0]) == [3.0]
    assert values.num_taken == 2


def test_a_gap_is_refused(core, values):
    initialise(core)
    (fault,) = sent(core.handle(push(0, 1, 1.0), 0.0), Fault)
    assert "number 0 has not arrived" in fault.text
    assert fault.entries == (SlotRound(0, 0, 1),)
    assert values.num_taken == 0


def test_a_gap_before_the_first_value_is_refused_too(core):
    assert sent(core.handle(push(0, 1, 1.0), 0.0), Fault)


def test_pushes_and_pulls_wait_for_the_first_value(core, values):
    event = push(1, 0, 2.0)
    assert core.handle(event, 0.0) == [Hold(event.payload)]
    assert core.handle(event, 0.0) == []
    assert core.handle(Received(11, Pull(8, 1, 0, 0, (PullEntry(0, 0, 0),))), 0.0) == []
    actions = initialise(core)
    assert {type(each) for each in sent(actions)} == {Value, Ack}
    assert of(actions, Release) == [Release(event.payload)]
    core.handle(push(0, 0, 1.0), 0.0)
    assert values.cells[0, 0].value == [3.0]


def test_a_second_init_is_acknowledged_and_changes_nothing(core, values):
    initialise(core)
    entry = InitEntry(0, 0, DType.FLOAT64, 1, 1, Layout.DENSE, Consistency.SYNC, 8)
    (ack,) = sent(core.handle(Received(11, Init(5, 1, 0, (entry,)), pack([9.0])), 0.0))
    assert ack == Ack(5, 1, (SlotRound(0, 0, 0),))
    assert values.cells[0, 0].value == [0.0]


def test_a_wrong_init_is_refused(core, values):
    entry = InitEntry(0, 0, DType.FLOAT64, 2, 1, Layout.DENSE, Consistency.SYNC, 8)
    assert sent(core.handle(Received(10, Init(5, 1, 0, (entry,)), pack([9.0])), 0.0), Fault)
    assert values.cells == {}


def test_a_pull_waits_for_the_rounds_that_it_must_see(core):
    initialise(core)
    pull = Received(10, Pull(8, 1, 0, 0, (PullEntry(0, 0, 1),)))
    assert core.handle(pull, 0.0) == []
    assert core.handle(pull, 0.0) == []
    core.handle(push(0, 0, 1.0), 0.0)
    actions = core.handle(push(1, 0, 2.0), 0.0)
    (value,) = sent(actions, Value)
    assert value.request == 8
    assert value.version + value.entries[0].lead == 1


def test_values_leave_with_the_priority_that_each_worker_asked_for(core):
    initialise(core)
    late = Pull(8, 1, 1, 5, (PullEntry(0, 0, 0),))
    assert core.handle(Received(10, late), 0.0) == []
    core.handle(push(0, 0, 1.0, want_value=True, priority=-7), 0.0)
    actions = core.handle(push(1, 0, 2.0, want_value=True, priority=3), 0.0)
    assert {(each.link, each.message.request): each.priority for each in of(actions, Send)} == {
        (10, 9): -7,
        (11, 9): 3,
        (10, 8): 5,
    }
    (send,) = of(core.handle(Received(10, late), 0.0), Send)
    assert send.priority == 5


def test_rows_are_fetched_when_they_are_recent_enough(core):
    entry = InitEntry(0, 0, DType.FLOAT64, 4, 2, Layout.ROWS, Consistency.SYNC, 32)
    core.handle(Received(10, Init(1, 1, 0, (entry,)), pack([1.0, 2.0, 3.0, 4.0])), 0.0)
    ids = (1).to_bytes(8, "little")
    (send,) = core.handle(Received(10, PullRows(4, 1, 0, 0, 0, 1), ids), 0.0)
    assert isinstance(send.message, Rows)
    assert unpack(send.payload[0]) == [3.0, 4.0]
    assert core.handle(Received(10, PullRows(5, 1, 0, 0, 1, 1), ids), 0.0) == [Hold(ids)]
    (fault,) = sent(
        core.handle(Received(10, PullRows(6, 1, 0, 0, 0, 1), (2).to_bytes(8, "little")), 0.0)
    )
    assert fault.code is FaultCode.BAD_REQUEST
    grads = pack([1.0] * 4)
    for rank in (0, 1):
        entries = (PushEntry(0, 0, 0, 32),)
        message = Push(9, 1, rank, rank, rank + 1, 1.0, False, False, 0, 0, entries)
        actions = core.handle(Received(10 + rank, message, grads), 0.0)
    assert of(actions, Release) == [Release(ids)]
    assert sent(actions, Rows)[0].request == 5


def test_no_rows_may_be_asked_for(core):
    initialise(core)
    (send,) = core.handle(Received(10, PullRows(4, 1, 0, 0, 0, 0), None), 0.0)
    assert send.message.payload_bytes == 0
    assert core.handle(Received(10, PullRows(5, 1, 0, 0, 1, 0), None), 0.0) == []
    core.handle(push(0, 0, 1.0), 0.0)
    assert sent(core.handle(push(1, 0, 1.0), 0.0), Rows)[0].request == 5


def test_weights_and_means(core, values):
    initialise(core)
    core.handle(push(0, 0, 2.0, weight=3.0, mean=True), 0.0)
    core.handle(push(1, 0, 4.0, weight=1.0, mean=True), 0.0)
    assert values.cells[0, 0].value == [10.0 / 4.0]
    core.handle(push(0, 1, 2.0, weight=0.0, mean=True), 0.0)
    core.handle(push(1, 1, 4.0, weight=0.0, mean=True), 0.0)
    assert values.cells[0, 0].value == [0.0]


def test_a_mean_and_a_sum_do_not_mix(core, values):
    initialise(core)
    core.handle(push(0, 0, 2.0, mean=True), 0.0)
    (fault,) = sent(core.handle(push(1, 0, 4.0), 0.0), Fault)
    assert "mean" in fault.text
    assert values.num_taken == 1


def test_a_refused_push_stays_refused_though_the_next_has_its_number(core, values):
    initialise(core, consistency=Consistency.ASYNC)
    refused = push(1, 0, 5.0, request=3)
    (fault,) = sent(core.handle(refused, 0.0), Fault)
    assert "set_optimizer" in fault.text
    values.rates[0] = 1.0
    assert sent(core.handle(refused, 0.0), Fault)
    assert sent(core.handle(push(1, 0, 7.0, request=4), 0.0), Ack)
    assert values.cells[0, 0].value == [7.0]


def test_asynchronous_pushes_are_applied_and_answered_at_once(core, values):
    values.rates[0] = 1.0
    initialise(core, consistency=Consistency.ASYNC)
    for number in range(3):
        (ack,) = sent(core.handle(push(1, number, 1.0), 0.0), Ack)
        assert ack.entries == (SlotRound(0, 0, number),)
    assert sent(core.handle(push(1, 2, 1.0), 0.0), Ack)
    assert values.cells[0, 0].value == [3.0]
    assert sent(core.handle(Received(10, Pull(8, 1, 0, 0, (PullEntry(0, 0, 0),))), 0.0), Value)
    assert sent(core.handle(Received(10, Pull(8, 1, 0, 0, (PullEntry(0, 0, 1),))), 0.0)) == []


def test_another_ranks_shards_are_refused(core, values):
    initialise(core)
    bad = Received(10, push(1, 0, 1.0).message, pack([1.0]))
    assert sent(core.handle(bad, 0.0), Fault)
    assert values.num_taken == 0


def test_a_rank_is_told_where_it_stands(core):
    initialise(core, (0, 1, 2))
    core.handle(push(0, 0, 1.0, key_ids=(0, 1)), 0.0)
    core.handle(push(1, 0, 1.0), 0.0)
    (reply,) = sent(core.handle(Received(10, Rounds(6, 1, (0, 1))), 0.0), RoundsReply)
    assert [(e.key_id, e.next_round, e.version) for e in reply.entries] == [(0, 1, 1), (1, 1, 0)]
    (reply,) = sent(core.handle(Received(10, Rounds(6, 1)), 0.0), RoundsReply)
    assert len(reply.entries) == 3


def test_a_wrong_entry_is_refused_and_the_others_count(core, values):
    initialise(core, (0, 1))
    entries = (PushEntry(0, 0, 0, 16), PushEntry(1, 0, 0, 8))
    message = Push(9, 1, 0, 0, 1, 1.0, False, False, 0, 0, entries)
    (fault,) = sent(core.handle(Received(10, message, pack([1.0, 2.0, 5.0])), 0.0), Fault)
    assert fault.entries == (SlotRound(0, 0, 0),)
    core.handle(push(1, 0, 1.0, key_ids=(1,)), 0.0)
    assert values.cells[1, 0].value == [6.0]


def joint(number, value, *, span=(0, 2), weights=(1.0, 1.0), request=70, key_ids=(0,), **more):
    """Return the ``Received`` of a joint push by link 20, which speaks for W[0]."""
    options = {"weighed": True, "mean": False, "want_value": False} | more
    entries = tuple(PushEntry(key, 0, 0, 8) for key in key_ids)
    message = JointPush(request, 1, 0, *span, weights, *options.values(), number, 0, entries)
    return Received(20, message, pack([value] * len(key_ids)))


def server_with_relay(num_workers=4, **options):
    core = running_server(num_workers)
    core.handle(Received(20, Attach(worker(0), 3, 1)), 0.0)
    initialise(core, **options)
    return core


def test_a_joint_push_counts_for_every_rank_that_it_covers():
    core = server_with_relay()
    assert core.handle(joint(0, 5.0, want_value=True), 0.0) == []
    core.handle(push(3, 0, 1.0), 0.0)
    actions = core.handle(push(2, 0, 1.0), 0.0)
    assert sorted(each.link for each in of(actions, Send)) == [12, 13, 20]
    (answer,) = sent(actions, Value)
    assert (answer.request, answer.version) == (70, 1)


def test_a_repeated_joint_push_is_answered_and_not_added():
    values = FloatValues()
    core = running_server(2, values)
    core.handle(Received(20, Attach(worker(0), 3, 1)), 0.0)
    initialise(core)
    assert sent(core.handle(joint(0, 5.0), 0.0), Ack) != []
    assert sent(core.handle(joint(0, 5.0), 0.0), Ack) != []
    assert (values.num_taken, values.cells[0, 0].value) == (1, [5.0])
    # And so is what one of its ranks sends itself.
    assert sent(core.handle(push(1, 0, 3.0), 0.0), Ack) != []
    assert values.cells[0, 0].value == [5.0]


def test_a_joint_push_of_which_part_is_known_is_refused():
    core = server_with_relay()
    core.handle(push(1, 0, 1.0), 0.0)
    (fault,) = sent(core.handle(joint(0, 5.0), 0.0), Fault)
    assert "known already" in fault.text
    # The others push for themselves.
    core.handle(push(0, 0, 1.0), 0.0)
    core.handle(push(2, 0, 1.0), 0.0)
    assert len(sent(core.handle(push(3, 0, 1.0), 0.0), Ack)) == 4


def test_a_joint_push_with_a_gap_is_refused():
    core = server_with_relay()
    (fault,) = sent(core.handle(joint(1, 5.0), 0.0), Fault)
    assert "number 0 has not arrived" in fault.text


@pytest.mark.parametrize(
    "received",
    [
        joint(0, 1.0, span=(0, 2), weights=(1.0,)),
        joint(0, 1.0, span=(0, 3), weights=(1.0, 1.0, 1.0)),
        joint(0, 1.0, span=(1, 3)),
        joint(0, 1.0, span=(0, 9), weights=(1.0,) * 9),
        Received(11, joint(0, 1.0).message, joint(0, 1.0).payload),
    ],
    ids=["weights", "no subtree", "crossing", "beyond", "another's link"],
)
def test_a_joint_push_says_whom_it_covers(received):
    core = server_with_relay()
    (fault,) = sent(core.handle(received, 0.0), Fault)
    assert fault.code is FaultCode.BAD_REQUEST
    core.handle(push(0, 0, 1.0), 0.0)


def test_only_what_is_pooled_and_has_a_value_takes_joint_pushes():
    core = server_with_relay(consistency=Consistency.ASYNC)
    (fault,) = sent(core.handle(joint(0, 1.0), 0.0), Fault)
    assert "not synchronous" in fault.text
    (fault,) = sent(core.handle(joint(0, 1.0, key_ids=(5,)), 0.0), Fault)
    assert "no first value" in fault.text


def test_weights_of_all_ranks_count_in_a_mean():
    values = FloatValues()
    core = running_server(3, values)
    core.handle(Received(20, Attach(worker(0), 3, 1)), 0.0)
    initialise(core)
    core.handle(joint(0, 6.0, weights=(1.0, 2.0), mean=True), 0.0)
    core.handle(push(2, 0, 2.0, weight=3.0, mean=True), 0.0)
    assert values.cells[0, 0].value == [2.0]


def test_one_contribution_is_weighed_here():
    values = FloatValues()
    core = running_server(2, values)
    core.handle(Received(20, Attach(worker(0), 3, 1)), 0.0)
    initialise(core)
    core.handle(joint(0, 6.0, span=(0, 1), weights=(0.5,), weighed=False), 0.0)
    core.handle(push(1, 0, 1.0), 0.0)
    assert values.cells[0, 0].value == [4.0]


def test_groups_take_joint_pushes():
    values = FloatValues()
    core = running_server(2, values)
    core.handle(Received(20, Attach(worker(0), 3, 1)), 0.0)
    initialise(core, key_ids=(0, 1))
    for number in range(8):
        actions = core.handle(joint(number, 1.0, key_ids=(0, 1), want_value=True), 0.0)
        assert [each.version + each.entries[0].lead for each in sent(actions, Value)] == [
            number + 1
        ]
    assert values.num_joined == 1


def test_a_relay_asks_where_another_rank_stands():
    core = server_with_relay()
    core.handle(push(1, 0, 1.0), 0.0)
    (reply,) = sent(core.handle(Received(20, Rounds(1, 1, (), 1)), 0.0), RoundsReply)
    assert reply.entries[0].next_round == 1
    (reply,) = sent(core.handle(Received(20, Rounds(1, 1, ())), 0.0), RoundsReply)
    assert reply.entries[0].next_round == 0
