from itertools import count

import pytest
from tests.core.nodes import entries

from bireme.core.calls import CommandCall, PushCall
from bireme.core.lanes import Lanes
from bireme.core.opencalls import OpenCall
from bireme.core.questions import CommandRequest
from bireme.core.requests import PushRequest
from bireme.types.choices import Layout
from bireme.wire.messages import CommandKind, KeyPlacement, SlotPlacement


@pytest.fixture
def lanes():
    numbers = count()
    found = Lanes(lambda: next(numbers))
    found.bundle_bytes = 1 << 20
    found.add_key(KeyPlacement(0, "a", (SlotPlacement(0, 0, 1),), True))
    found.add_key(KeyPlacement(1, "b", (SlotPlacement(0, 0, 1),), True))
    return found


def push(lanes, number, *keys):
    call = OpenCall(PushCall(number, entries(*keys), 9.0), 9.0, len(keys))
    for item in call.call.entries:
        lanes.hand_in(call, lanes.by_slot[item[0], 0], item, is_push=True)
    return call


def command(lanes, number):
    call = OpenCall(CommandCall(number, 0, CommandKind.SET_OPTIMIZER, {}, 9.0), 9.0, 1)
    request = CommandRequest(100 + number, call, 0, 0, CommandKind.SET_OPTIMIZER, {}, None)
    lanes.command(request)
    return request


def ready(lanes):
    return [
        "command" if isinstance(each, CommandRequest) else [slot[0] for slot in each.items]
        for each in lanes.take_ready()
    ]


def answer(lanes, key, accepted=True):
    lanes.answered(lanes.by_slot[key, 0], is_push=True, accepted=accepted)


def test_pushes_of_a_slot_go_one_after_the_other(lanes):
    push(lanes, 1, 0)
    push(lanes, 2, 0, 1)
    assert ready(lanes) == [[0], [1]]
    assert ready(lanes) == []
    answer(lanes, 0)
    assert ready(lanes) == [[0]]
    assert lanes.by_slot[0, 0].number == 1


def test_a_refused_push_does_not_use_up_its_number(lanes):
    push(lanes, 1, 0)
    answer(lanes, 0, accepted=False)
    assert (lanes.by_slot[0, 0].number, lanes.by_slot[0, 0].pending) == (0, 0)


def test_commands_wait_and_are_waited_for(lanes):
    push(lanes, 1, 0, 1)
    first = command(lanes, 2)
    push(lanes, 3, 0)
    second = command(lanes, 4)
    push(lanes, 5, 1)
    assert ready(lanes) == [[0, 1]]
    answer(lanes, 0)
    assert ready(lanes) == []
    answer(lanes, 1)
    assert ready(lanes) == ["command"]
    lanes.command_answered(first)
    assert ready(lanes) == [[0]]
    answer(lanes, 0)
    assert ready(lanes) == ["command"]
    lanes.command_answered(second)
    assert ready(lanes) == [[1]]


def test_a_command_with_nothing_before_it_goes_at_once(lanes):
    command(lanes, 1)
    assert ready(lanes) == ["command"]


def test_what_is_held_back_is_known(lanes):
    push(lanes, 1, 0)
    queued = push(lanes, 2, 0)
    behind = command(lanes, 3)
    assert lanes.waiting_servers(queued) == {0}
    assert lanes.waiting_servers(behind.call) == {0}
    assert lanes.waiting_servers(OpenCall(PushCall(9, (), 9.0), 9.0, 0)) == set()


def test_abandoned_items_come_back_once(lanes):
    push(lanes, 1, 0)
    sent = lanes.take_ready()
    push(lanes, 2, 0, 1)
    command(lanes, 3)
    push(lanes, 4, 1)
    assert sorted(item[0] for item in lanes.abandon()) == [0, 1, 1]
    assert list(lanes.abandon()) == []
    assert isinstance(sent[0], PushRequest)


def servers_of(rank, slots):
    """Servers in the order in which a rank sends one slot after the other."""
    numbers = count()
    lanes = Lanes(lambda: next(numbers))
    lanes.bundle_bytes = 1
    lanes.rank = lanes.turn = rank
    lanes.add_key(KeyPlacement(0, "a", tuple(SlotPlacement(each, 0, 1) for each in slots), True))
    call = OpenCall(PushCall(1, (), 9.0), 9.0, len(slots))
    for index in range(len(slots)):
        item = (0, index, None, 4, "raw", Layout.DENSE, 0)
        lanes.hand_in(call, lanes.by_slot[0, index], item, is_push=True)
    return [request.server for request in lanes.take_ready()]


def test_servers_are_done_at_the_same_time_whatever_their_shares():
    assert servers_of(0, [0, 0, 0, 0, 1, 1]) == [0, 1, 0, 0, 1, 0]


def test_each_rank_begins_with_another_server():
    assert [servers_of(rank, [0, 1, 2]) for rank in range(4)] == [
        [0, 1, 2],
        [1, 2, 0],
        [2, 0, 1],
        [0, 1, 2],
    ]
