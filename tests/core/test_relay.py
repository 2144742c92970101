"""One relay by itself: workers by links 20, 21, ..., servers by links 30, 31, ..."""

import pytest

from bireme.core.actions import Close, Connect, Log, Release, Send
from bireme.core.events import ConnectFailed, Linked, Lost, Received, Tick
from bireme.core.neighbours import Neighbours
from bireme.core.relay import RelayCore
from bireme.sim.relaying import FloatSums
from bireme.sim.values import pack, unpack
from bireme.types.dtypes import DType
from bireme.types.nodes import SCHEDULER, server, worker
from bireme.wire.messages import (
    Ack,
    Attach,
    Attached,
    Declined,
    Fault,
    FaultCode,
    Handover,
    Heartbeat,
    JobConfig,
    JointPush,
    Leave,
    NodeInfo,
    PushEntry,
    RoundEntry,
    Rounds,
    RoundsReply,
    SlotRound,
    Stale,
    Status,
    StatusRequest,
    Value,
    ValueEntry,
)

NUM_WORKERS = 4
SLOTS = ((3, 0), (4, 0))
ENTRIES = tuple(PushEntry(*slot, 0, 8) for slot in SLOTS)
VALUES = tuple(ValueEntry(*slot, 0, 8) for slot in SLOTS)


def new_relay(num_servers=1):
    leader = NodeInfo(worker(0), 7, "a", 1, ("unix://@r",))
    servers = tuple(
        NodeInfo(server(rank), 2, "b", 1, (f"tcp://{rank}",)) for rank in range(num_servers)
    )
    config = JobConfig(NUM_WORKERS, num_servers, NUM_WORKERS, resend_timeout_s=2.0)
    return RelayCore(Neighbours(leader, (0, 1), servers, 0), config, 7, 1, FloatSums())


def running_relay(workers=(0, 1), attached=True):
    relay = new_relay()
    assert relay.start(0.0) == [Connect(server(0), ("tcp://0",))]
    for rank in workers:
        (send,) = got(relay, 20 + rank, Attach(worker(rank), 7 + rank, 1))
        assert send.message == Attached(worker(0), 7, 1)
    (send,) = relay.handle(Linked(30, server(0)), 0.0)
    assert send.message == Attach(worker(0), 7, 1)
    if attached:
        assert got(relay, 30, Attached(server(0), 2, 1)) == []
    return relay


def got(relay, link, message, payload=None, now_s=0.0):
    return relay.handle(Received(link, message, payload), now_s)


def handover(rank, number=0, *, numbers=(1.0, 2.0), want_value=True, mean=False, view=1, request=5):
    message = Handover(
        request, view, 0, DType.FLOAT64, rank, 1.0, mean, want_value, number, 0, ENTRIES
    )
    return message, pack(list(numbers))


def hand(relay, rank, number=0, now_s=0.0, **options):
    message, payload = handover(rank, number, **options)
    return got(relay, 20 + rank, message, payload, now_s)


def sent(actions, kind):
    return [
        (each.link, each.message)
        for each in actions
        if isinstance(each, Send) and isinstance(each.message, kind)
    ]


def value(request, version=1):
    return Value(request, 1, version, VALUES)


def test_pushes_of_all_workers_become_one_and_its_answer_goes_to_all():
    relay = running_relay()
    assert hand(relay, 1, request=8) == []
    (send,) = hand(relay, 0, request=9, numbers=(10.0, 20.0))
    push = send.message
    assert (send.link, push.first_shard, push.end_shard, push.weights) == (30, 0, 2, (1.0, 1.0))
    assert (push.rank, push.view, push.round, push.want_value) == (0, 1, 0, True)
    assert unpack(send.payload[0]) == [11.0, 22.0]
    actions = got(relay, 30, value(push.request), pack([5.0, 6.0]))
    assert {link: message.request for link, message in sent(actions, Value)} == {21: 8, 20: 9}
    assert len([each for each in actions if isinstance(each, Release)]) == 2
    # A second answer finds nobody.
    assert got(relay, 30, value(push.request), pack([5.0, 6.0])) == []


def test_each_gets_the_kind_of_answer_that_it_wants():
    relay = running_relay()
    hand(relay, 0, want_value=False)
    ((_, push),) = sent(hand(relay, 1), JointPush)
    actions = got(relay, 30, value(push.request), pack([5.0, 6.0]))
    assert sent(actions, Ack) == [(20, Ack(5, 1, ()))]
    assert [link for link, _ in sent(actions, Value)] == [21]


def test_acknowledgements_are_handed_on_even_in_parts():
    relay = running_relay()
    hand(relay, 0, want_value=False)
    ((_, push),) = sent(hand(relay, 1, want_value=False), JointPush)
    assert not push.want_value
    actions = got(relay, 30, Ack(push.request, 1, (SlotRound(3, 0, 0),)))
    assert [message.entries for _, message in sent(actions, Ack)] == [(SlotRound(3, 0, 0),)] * 2
    actions = got(relay, 30, Ack(push.request, 1, (SlotRound(4, 0, 0),)))
    assert len(sent(actions, Ack)) == 2
    assert any(isinstance(each, Release) for each in actions)


def test_what_comes_before_the_server_takes_messages_waits():
    relay = running_relay(attached=False)
    hand(relay, 0)
    assert hand(relay, 1) == []
    assert len(sent(got(relay, 30, Attached(server(0), 2, 1)), JointPush)) == 1
    assert got(relay, 30, Attached(server(0), 2, 1)) == []


def test_a_repeated_push_changes_nothing_and_takes_over_the_answer():
    relay = running_relay()
    hand(relay, 0, request=5)
    assert hand(relay, 0, request=6, numbers=(100.0, 100.0)) == []
    (send,) = hand(relay, 1)
    assert unpack(send.payload[0]) == [2.0, 4.0]
    assert hand(relay, 0, request=7) == []
    actions = got(relay, 30, value(send.message.request), pack([5.0, 6.0]))
    assert (20, 7) in [(link, message.request) for link, message in sent(actions, Value)]


def test_a_round_that_is_over_is_declined():
    relay = running_relay()
    hand(relay, 0)
    ((_, push),) = sent(hand(relay, 1), JointPush)
    got(relay, 30, value(push.request), pack([5.0, 6.0]))
    assert [link for link, _ in sent(hand(relay, 1), Declined)] == [21]
    hand(relay, 0, 1)
    assert len(sent(hand(relay, 1, 1), JointPush)) == 1


def test_nobody_waits_for_a_worker_that_has_left():
    relay = running_relay()
    hand(relay, 0)
    ((_, push),) = sent(relay.handle(Lost(21, "closed"), 0.0), JointPush)
    assert (push.first_shard, push.end_shard, push.weights) == (0, 1, (1.0,))
    relay = running_relay()
    hand(relay, 0)
    assert len(sent(got(relay, 21, Leave()), JointPush)) == 1
    assert relay.handle(Lost(21, "closed"), 0.0) == []


def test_what_a_lost_worker_gave_is_given_back():
    relay = running_relay()
    hand(relay, 1)
    actions = relay.handle(Lost(21, "closed"), 0.0)
    assert sent(actions, JointPush) == []
    assert any(isinstance(each, Release) for each in actions)
    assert sent(hand(relay, 0), Declined) != []


@pytest.mark.parametrize(
    "refusal",
    [
        lambda request: Fault(FaultCode.WRONG_STATE, "known already", request),
        lambda request: Stale(2, request),
    ],
)
def test_what_a_server_refuses_each_worker_sends_itself(refusal):
    relay = running_relay()
    hand(relay, 0)
    ((_, push),) = sent(hand(relay, 1), JointPush)
    actions = got(relay, 30, refusal(push.request))
    assert [link for link, _ in sent(actions, Declined)] == [20, 21]
    assert any(isinstance(each, Release) for each in actions)
    assert got(relay, 30, refusal(push.request)) == []


def test_means_and_sums_do_not_mix():
    relay = running_relay()
    hand(relay, 0, mean=True)
    assert sorted(link for link, _ in sent(hand(relay, 1), Declined)) == [20, 21]


def test_the_newest_view_is_the_servers_to_judge():
    relay = running_relay()
    hand(relay, 0, view=3)
    ((_, push),) = sent(hand(relay, 1, view=2), JointPush)
    assert push.view == 3


def test_it_asks_whether_a_push_has_arrived_before_it_sends_it_again():
    relay = running_relay()
    hand(relay, 0)
    ((_, push),) = sent(hand(relay, 1), JointPush)
    assert relay.next_deadline_s() == 0.5
    assert relay.handle(Tick(), 0.5) == []
    ((_, question),) = sent(relay.handle(Tick(), 2.5), Rounds)
    assert (question.key_ids, question.rank) == ((3, 4), 0)
    here = tuple(RoundEntry(*slot, 1, 0) for slot in SLOTS)
    assert got(relay, 30, RoundsReply(question.request, 1, here)) == []
    ((_, question),) = sent(relay.handle(Tick(), 9.0), Rounds)
    missing = (RoundEntry(3, 0, 0, 0), RoundEntry(4, 0, 1, 0))
    ((_, again),) = sent(got(relay, 30, RoundsReply(question.request, 1, missing)), JointPush)
    assert again == push


def test_a_worker_is_told_which_of_its_pushes_are_here():
    relay = running_relay()
    hand(relay, 0, 4)
    ((_, reply),) = sent(got(relay, 20, Rounds(1, 1, (3,))), RoundsReply)
    assert reply.entries == (RoundEntry(3, 0, 5, 4),)
    ((_, reply),) = sent(got(relay, 21, Rounds(1, 1, (3, 4))), RoundsReply)
    assert reply.entries == ()


def test_nothing_waits_here_for_long():
    relay = running_relay()
    hand(relay, 0)
    actions = relay.handle(Tick(), 10.5)
    assert [link for link, _ in sent(actions, Declined)] == [20]
    assert [each.level for each in actions if isinstance(each, Log)] == ["info"]
    assert relay.next_deadline_s() is None


def test_a_broken_link_to_a_server_comes_back_and_what_was_on_it_goes_again():
    relay = running_relay()
    hand(relay, 0)
    ((_, push),) = sent(hand(relay, 1), JointPush)
    log, connect = relay.handle(Lost(30, "reset"), 1.0)
    assert (log.level, connect) == ("warning", Connect(server(0), ("tcp://0",)))
    assert relay.handle(ConnectFailed(server(0), "refused"), 1.0) == []
    assert relay.handle(Tick(), 1.2) == [Connect(server(0), ("tcp://0",))]
    relay.handle(Linked(31, server(0)), 1.3)
    assert sent(relay.handle(Tick(), 2.4), Attach) != []
    assert sent(got(relay, 31, Attached(server(0), 2, 1)), JointPush) == [(31, push)]


def test_it_reports_who_is_waited_for():
    relay = running_relay()
    hand(relay, 1)
    ((_, status),) = sent(got(relay, 99, StatusRequest(4)), Status)
    assert status.report["open"][0] == {"key_id": 3, "index": 0, "round": 0, "missing": [0]}


@pytest.mark.parametrize(
    "message", [Heartbeat(0.0), Attach(worker(3), 9, 1), Attach(SCHEDULER, 1, 1), value(0)]
)
def test_strangers_are_shown_out(message):
    assert got(running_relay(), 50, message, None) == [Close(50)]


def test_workers_cannot_answer_and_servers_cannot_ask():
    relay = running_relay()
    hand(relay, 0)
    ((_, push),) = sent(hand(relay, 1), JointPush)
    assert got(relay, 20, value(push.request), pack([0.0, 0.0])) == []
    assert got(relay, 30, Rounds(1, 1, (3,))) == []
    message, payload = handover(1)
    assert len(sent(got(relay, 20, message, payload), Declined)) == 1
