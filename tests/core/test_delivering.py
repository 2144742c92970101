"""Pieces for server 0, by link 30."""

import itertools

import pytest

from bireme.core.actions import Send
from bireme.core.delivering import Deliveries
from bireme.core.gathering import Bundle
from bireme.core.tree import Tree
from bireme.core.ways import Ways
from bireme.sim.relaying import FloatSums
from bireme.sim.values import pack
from bireme.types.dtypes import DType
from bireme.types.nodes import server, worker
from bireme.wire.messages import Handover, NodeInfo, PushEntry, RoundEntry, Rounds, RoundsReply

SPANS = {0: (0, 1), 1: (1, 2)}
PAUSE_S = 2.0


@pytest.fixture
def ways():
    ways = Ways(worker(0), 7, [NodeInfo(server(0), 2, "b", 1, ("tcp://0",))])
    ways.linked(30, server(0), 1, 0.0)
    ways.attached(30)
    return ways


@pytest.fixture
def deliveries(ways):
    return Deliveries(ways, SPANS, itertools.count(100), PAUSE_S)


def piece_of(number=4):
    """Return what one bundle of two workers becomes."""
    entries = (PushEntry(3, 0, 0, 8), PushEntry(4, 0, 0, 8))
    bundle = None
    for rank, span in SPANS.items():
        message = Handover(5, 1, 0, DType.FLOAT64, rank, 1.0, False, True, number, 0, entries)
        bundle = bundle or Bundle(message, 0.0, Tree(2), FloatSums())
        bundle.take(20 + rank, message, span, pack([1.0, 2.0]), plain=True)
    (piece,) = bundle.close(0, 1, SPANS, itertools.count())
    return piece


def sent(piece, link=30):
    return [Send(link, piece.message, (piece.handle,), piece.message.priority)]


def test_a_piece_is_sent_and_kept(deliveries):
    piece = piece_of()
    assert deliveries.send(piece, 0.0) == sent(piece)
    assert deliveries.pieces == {0: piece}


def test_what_finds_no_link_goes_when_there_is_one(deliveries, ways):
    piece = piece_of()
    ways.lost(30, "reset", is_needed=True)
    assert deliveries.send(piece, 0.0) == []
    ways.linked(31, server(0), 1, 1.0)
    assert deliveries.send(piece, 1.0) == []
    ways.attached(31)
    assert deliveries.reached(0, 1.0) == sent(piece, 31)
    assert deliveries.reached(1, 1.0) == []


def test_it_asks_before_it_sends_again_and_ever_more_rarely(deliveries):
    piece = piece_of()
    deliveries.send(piece, 0.0)
    asked = []
    for quarters in range(400):
        for action in deliveries.tick(3, quarters / 4):
            assert (action.link, type(action.message)) == (30, Rounds)
            assert (action.message.view, action.message.key_ids) == (3, (3, 4))
            asked.append(quarters / 4)
    assert asked == [2.0, 6.0, 14.0, 30.0, 46.0, 62.0, 78.0, 94.0]


@pytest.mark.parametrize(
    ("entries", "goes_again"),
    [
        ((RoundEntry(3, 0, 5, 4), RoundEntry(4, 0, 5, 4)), False),
        ((RoundEntry(3, 0, 5, 4),), True),
        ((RoundEntry(3, 0, 5, 4), RoundEntry(4, 0, 4, 4)), True),
        ((RoundEntry(3, 0, 5, 4), RoundEntry(4, 0, 5, 5)), True),
    ],
)
def test_what_a_server_lacks_or_has_answered_goes_again(deliveries, entries, goes_again):
    piece = piece_of()
    deliveries.send(piece, 0.0)
    (question,) = deliveries.tick(1, 2.0)
    reply = RoundsReply(question.message.request, 1, entries)
    assert deliveries.replied(reply, 2.0) == (sent(piece) if goes_again else [])
    assert deliveries.replied(reply, 2.0) == []


def test_an_answer_that_comes_too_late_changes_nothing(deliveries):
    piece = piece_of()
    deliveries.send(piece, 0.0)
    (question,) = deliveries.tick(1, 2.0)
    del deliveries.pieces[0]
    assert deliveries.tick(1, 9.0) == []
    assert deliveries.replied(RoundsReply(question.message.request, 1, ()), 9.0) == []
