"""What is given out of one slot whose rounds this file completes by hand."""

import struct

import pytest

from bireme.consistency.registry import new_ledger
from bireme.core.actions import Release, Send
from bireme.core.outlet import WHOLE, Outlet, Peer
from bireme.core.replies import Replies
from bireme.core.slots import Slot
from bireme.sim.values import Cell, FloatValues, pack, unpack
from bireme.types.choices import Consistency
from bireme.wire.messages import Ack, Fault, Rows, SlotRound, Value

LINKS = {10: Peer(0, 1, 0, (0, 1)), 11: Peer(1, 1, 1, (1, 2))}


class Bench:
    def __init__(self):
        self.values, self.replies, self.peers = FloatValues(), Replies(), dict(LINKS)
        self.outlet = Outlet(self.values, self.replies, self.peers)
        self.outlet.view = 4
        cell = self.values.cells[7, 0] = Cell((7, 0), 0, [1.0, 2.0, 3.0, 4.0], 2)
        self.slot = Slot(7, 0, 0, cell, new_ledger(Consistency.SYNC))

    def complete(self):
        """Both ranks have contributed once."""
        for rank in (0, 1):
            self.slot.ledger.record(rank)
        self.slot.ledger.advance()

    def waits(self, link, *, want_value, number=0):
        self.slot.pushes[LINKS[link].rank] = (link, 20 + link, number, want_value, 0, True)

    def sent(self):
        return self.replies.take(self.outlet.view)


@pytest.fixture
def bench():
    return Bench()


def test_who_wants_the_value_gets_it_and_the_others_an_acknowledgement(bench):
    bench.complete()
    bench.waits(10, want_value=True)
    bench.waits(11, want_value=False)
    bench.outlet.hand_out(bench.slot)
    answers = {each.link: each for each in bench.sent()}
    assert isinstance(answers[10].message, Value)
    assert (answers[10].message.request, answers[10].message.view) == (30, 4)
    assert unpack(answers[10].payload[0]) == [1.0, 2.0, 3.0, 4.0]
    assert answers[11].message == Ack(31, 4, (SlotRound(7, 0, 0),))
    assert not bench.slot.pushes


def test_a_push_of_the_next_round_goes_on_waiting(bench):
    bench.complete()
    bench.waits(10, want_value=True, number=1)
    bench.outlet.hand_out(bench.slot)
    assert bench.sent() == []
    assert list(bench.slot.pushes) == [0]


def test_who_is_gone_is_not_answered_and_its_row_numbers_are_let_go(bench):
    rows = pack([0.0])
    bench.waits(10, want_value=True)
    bench.slot.pulls[10, 5] = (0, 0, rows, 1, 0)
    bench.complete()
    del bench.peers[10]
    bench.outlet.hand_out(bench.slot)
    assert bench.sent() == [Release(rows)]
    assert not bench.slot.pushes
    assert not bench.slot.pulls


def test_pulls_wait_for_their_version(bench):
    bench.slot.pulls[10, 5] = (0, 0, None, WHOLE, 0)
    bench.slot.pulls[11, 6] = (1, 1, None, WHOLE, 0)
    bench.outlet.answer_pulls(bench.slot)
    assert [each.link for each in bench.sent()] == [10]
    bench.complete()
    bench.outlet.answer_pulls(bench.slot)
    (answer,) = bench.sent()
    assert (answer.link, answer.message.version) == (11, 1)


def test_what_cannot_be_read_is_a_fault_for_who_asks(bench, monkeypatch):
    def broken(cell):
        raise ArithmeticError("no such number")

    monkeypatch.setattr(bench.values, "read", broken)
    bench.outlet.send_value(bench.slot, (10, 5), 0)
    (answer,) = bench.sent()
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Fault)
    assert (answer.link, answer.message.request) == (10, 5)
    assert "no such number" in answer.message.text


def test_rows(bench):
    bench.outlet.send_rows(bench.slot, (11, 9), struct.pack("<1q", 1), 1)
    (answer,) = bench.sent()
    assert answer.message == Rows(9, 4, 7, 0, 0, 1, 16)
    assert unpack(answer.payload[0]) == [3.0, 4.0]
