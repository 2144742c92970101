"""What a relay has sent to servers and is not answered: asked about, and sent again.

Called by :mod:`bireme.core.relay`.
"""

from collections.abc import Iterator, Mapping

from bireme.core.actions import Action, Send
from bireme.core.gathering import Piece
from bireme.core.ways import Ways
from bireme.wire.messages import Rounds, RoundsReply

__all__ = ("Deliveries",)

_LONGEST_PAUSE = 8


class Deliveries:
    """All pieces under way.

    Args:
        ways: The links to servers.
        spans: The shards of each rank of the machine.
        numbers: Gives each question its number.
        pause_s: After which a piece without an answer is asked about; doubles.

    Attributes:
        pieces: By request: what was sent, or waits for a link, and is not answered. Whoever hears
            the last answer takes it out.
    """

    def __init__(
        self,
        ways: Ways,
        spans: Mapping[int, tuple[int, int]],
        numbers: Iterator[int],
        pause_s: float,
    ) -> None:
        self._ways = ways
        self._spans = spans
        self._numbers = numbers
        self._pause_s = pause_s
        self.pieces: dict[int, Piece] = {}
        self._questions: dict[int, int] = {}
        """By request: the piece that was asked about."""

    def send(self, piece: Piece, now_s: float) -> list[Action]:
        """Send a piece, or send it again: now, or once its server takes messages."""
        self.pieces[piece.message.request] = piece
        piece.pause_s = piece.pause_s or self._pause_s
        piece.due_s = now_s + piece.pause_s
        way = self._ways.by_rank[piece.bundle.server]
        if way.link is None or not way.attached:
            return []
        payload = () if piece.handle is None else (piece.handle,)
        return [Send(way.link, piece.message, payload, piece.message.priority)]

    def reached(self, server: int, now_s: float) -> list[Action]:
        """A link to a server is up: send by it what it may not have."""
        actions: list[Action] = []
        for piece in self.pieces.values():
            if piece.bundle.server == server:
                actions += self.send(piece, now_s)
        return actions

    def tick(self, view: int, now_s: float) -> list[Action]:
        """Ask about what has had no answer for long."""
        actions: list[Action] = []
        for piece in self.pieces.values():
            way = self._ways.by_rank[piece.bundle.server]
            if now_s >= piece.due_s and way.attached and way.link is not None:
                piece.pause_s = min(2 * piece.pause_s, _LONGEST_PAUSE * self._pause_s)
                piece.due_s = now_s + piece.pause_s
                actions.append(self._question(way.link, piece, view))
        if not self.pieces:
            self._questions.clear()
        return actions

    def replied(self, message: RoundsReply, now_s: float) -> list[Action]:
        """Hear which rounds a server has taken in; what is missing goes again."""
        piece = self.pieces.get(self._questions.pop(message.request, -1))
        if piece is None:
            return []
        known = {(each.key_id, each.index): each for each in message.entries}
        for entry in piece.message.entries:
            number = piece.message.round + entry.lead
            found = known.get((entry.key_id, entry.index))
            if found is None or found.next_round <= number or found.version > number:
                return self.send(piece, now_s)
        return []

    def _question(self, link: int, piece: Piece, view: int) -> Send:
        """Ask whether a piece has arrived, which costs less than to send it again."""
        number, message = next(self._numbers), piece.message
        rank = next(rank for rank, span in self._spans.items() if span[0] == message.first_shard)
        keys = tuple(dict.fromkeys(entry.key_id for entry in message.entries))
        self._questions[number] = message.request
        # It must not overtake the push it asks about, which may still wait to leave.
        return Send(link, Rounds(number, view, keys, rank), (), message.priority)
