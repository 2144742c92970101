"""The shell around the state machines: reports out, verdicts in, clocks."""

import threading
import time

import pytest
from tests.collective.boards import boards_of

from bireme.collective import Handle, Topology, board
from bireme.collective.bank.futex import Futex
from bireme.collective.channel import Gone, Heard
from bireme.collective.negotiating import Entry, Negotiation
from bireme.collective.submissions import Call, Piece
from bireme.core.negotiation.member import Execute, Stop
from bireme.core.negotiation.messages import Fault, Kind, Request
from bireme.errors import ConfigError
from bireme.settings.collective import CollectiveSettings


class Wire:
    """Channels of ranks that a test polls in turn."""

    def __init__(self, size):
        self.inboxes = [[] for _ in range(size)]
        self.limits = []

    def end(self, rank):
        wire = self

        class End:
            def send(self, to, body):
                wire.inboxes[to].append(Heard(rank, body))

            def wake(self):
                pass

            def poll(self, timeout_s):
                wire.limits.append(timeout_s)
                news, wire.inboxes[rank] = wire.inboxes[rank], []
                return news

        return End()


@pytest.fixture
def job():
    """Wire, negotiations of two ranks, and the orders that each got."""
    wire, orders = Wire(2), ([], [])
    settings = CollectiveSettings(stall_warning_s=30.0)
    sides = [
        Negotiation(Topology.on_one_machine(rank, 2), wire.end(rank), settings, orders[rank].extend)
        for rank in range(2)
    ]
    return wire, sides, orders


@pytest.fixture
def boarded():
    """As ``job``, on a board: both have agreed on ``a`` once."""
    wire, orders = Wire(2), ([], [])
    settings = CollectiveSettings(stall_warning_s=30.0)
    sides = [
        Negotiation(
            Topology.on_one_machine(rank, 2), wire.end(rank), settings, orders[rank].extend, board
        )
        for rank, board in enumerate(boards_of(2))
    ]
    for side in sides:
        side.submit([entry("a")])
    for number in (1, 0, 1):
        sides[number].step(0.0)
    for side, mine in zip(sides, orders, strict=True):
        side.member.take_ticket((0, "a"))
        mine.clear()
    yield wire, sides, orders
    for side in sides:
        side.close()


def names_of(orders):
    return [
        each.request.name for order in orders for bucket in order.buckets for each in bucket.members
    ]


def test_a_repeated_step_goes_by_the_board(boarded):
    wire, (zero, one), orders = boarded
    zero.submit([entry("a")])
    one.submit([entry("a")])
    one.step(0.0)
    assert orders == ([], [])
    zero.step(0.0)
    one.step(0.0)
    assert [names_of(mine) for mine in orders] == [["a"], ["a"]]
    assert wire.inboxes == [[], []]


def test_who_sleeps_at_the_board_is_woken_by_what_runs(boarded):
    _, (zero, one), orders = boarded
    zero.submit([entry("a")])
    one.submit([entry("a")])

    def until_something_runs():
        while not orders[0]:
            zero.step(None)

    sleeper = threading.Thread(target=until_something_runs)
    sleeper.start()
    one.step(None)
    while not orders[1]:
        one.step(None)
    sleeper.join(10.0)
    assert not sleeper.is_alive()
    assert [names_of(mine) for mine in orders] == [["a"], ["a"]]


@pytest.fixture
def still(monkeypatch):
    """A clock that stands still, however late the machine gets to what is next."""
    monkeypatch.setattr("bireme.collective.negotiating.time.monotonic", lambda: 1e6)


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("late", [0, 1])
def test_a_long_wait_is_left_to_the_coordinator(boarded, late):
    _, sides, orders = boarded
    waiting = sides[1 - late]
    waiting.submit([entry("a")])
    for _ in range(2):
        waiting.step(None)
    sides[0].step(0.0)
    # From here on nobody looks at the board, and rank 0 knows when to tell of a stall.
    assert sides[0]._limit(None) == 30.0
    assert waiting._bell() is None
    sides[late].submit([entry("a")])
    sides[late].step(0.0)
    for side in sides:
        side.step(0.0)
    assert [names_of(mine) for mine in orders] == [["a"], ["a"]]
    assert sides[0]._bell() is None


def test_a_wake_ends_the_sleep_at_the_board(boarded, monkeypatch):
    _, (zero, _), _ = boarded
    monkeypatch.setattr(board, "PATIENCE_S", 60.0)
    monkeypatch.setattr(zero._board, "_futex", Futex(60.0))
    zero.submit([entry("a")])
    zero.step(0.0)
    for _ in range(3):
        zero.wake()
        began_s = time.monotonic()
        zero.step(None)
        assert time.monotonic() - began_s < 30.0
    assert zero._bell() is not None, "it was no reason to give up waiting"


def test_what_a_board_said_comes_before_a_verdict(boarded):
    _, (zero, one), orders = boarded
    zero.submit([entry("a")])
    one.submit([entry("a")])
    zero.step(0.0)
    one.step(0.0)
    zero.submit([entry("b")])
    one.submit([entry("b")])
    one.member.take_ticket((0, "a"))
    one._tell(one.member.report())
    zero.step(0.0)
    for _ in range(2):
        zero.step(0.0)
        one.step(0.0)
    assert [names_of(mine) for mine in orders] == [["a", "b"], ["a", "b"]]


def entry(name):
    request = Request(name, Kind.ALLREDUCE, "float32", (2,))
    piece = Piece(Call(Handle(1, name), 1, list), 0)
    return Entry(request.key, request, piece, lambda: request)


def test_what_both_submit_is_executed(job):
    wire, (zero, one), orders = job
    assert zero.submit([entry("a")])
    assert not zero.submit([entry("b")])
    with pytest.raises(ConfigError):
        zero.submit([entry("c"), entry("a")])
    assert len(zero.member) == 2
    one.submit([entry("a")])
    one.step(0.0)
    zero.step(0.0)
    assert 0 < wire.limits[-1] <= 30.0 or wire.limits[-1] == 0.0
    one.step(0.0)
    for mine in orders:
        (order,) = mine
        assert isinstance(order, Execute)
        assert [each.request.name for each in order.buckets[0].members] == ["a"]


@pytest.mark.usefixtures("still")
def test_stalls_bound_the_wait_of_rank_0_only(job):
    wire, (zero, one), _ = job
    zero.submit([entry("a")])
    zero.step(None)
    assert wire.limits[-1] == 30.0
    one.step(None)
    assert wire.limits[-1] is None


def test_the_loss_of_rank_0_is_told_by_nobody_else(job):
    wire, (_, one), orders = job
    wire.inboxes[1].append(Gone(0, "reset"))
    one.step(0.0)
    assert orders[1] == [Stop(Fault.LOST, "rank 0 is lost: reset")]
    one.stopped()
    wire.inboxes[1].append(Gone(0, "reset"))
    one.step(0.0)
    assert len(orders[1]) == 1


def test_a_death_explains_a_failed_exchange(job):
    wire, (zero, one), orders = job
    one.fail(Stop(Fault.BROKEN, "connection closed"))
    zero.step(0.0)
    assert orders[0] == []
    assert wire.inboxes[1] == []
    wire.inboxes[0].append(Gone(1, "killed"))
    zero.step(0.0)
    assert orders[0] == [Stop(Fault.LOST, "rank 1 is lost: killed")]


def test_a_failed_exchange_without_a_death_is_told_after_a_moment(job, monkeypatch):
    _, (zero, one), orders = job
    one.fail(Stop(Fault.BROKEN, "odd"))
    zero.step(0.0)
    now = [1e9]
    monkeypatch.setattr("bireme.collective.negotiating.time.monotonic", lambda: now[0])
    zero.step(0.0)
    one.step(0.0)
    assert orders[0] == [Stop(Fault.BROKEN, "rank 1: odd")]
    assert orders[1][0] == orders[0][0]


def test_a_rank_that_nobody_answers_gives_itself_the_reason(job, monkeypatch):
    _, (_, one), orders = job
    one.fail(Stop(Fault.BROKEN, "odd"))
    monkeypatch.setattr("bireme.collective.negotiating.time.monotonic", lambda: 1e9)
    one.step(0.0)
    assert orders[1] == [Stop(Fault.BROKEN, "odd")]


def test_leaving_is_told(job):
    _, (zero, one), orders = job
    zero.submit([entry("a")])
    zero.step(0.0)
    one.leave()
    zero.step(0.0)
    (order,) = orders[0]
    assert "rank 1 has shut down" in order.message
    one.fail(Stop(Fault.BROKEN, "late"))
    assert orders[1] == [Stop(Fault.BROKEN, "late")]
