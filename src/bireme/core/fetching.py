"""What a relay fetches for the workers of a machine: one question to a server for all of them.

Called by :mod:`bireme.core.relay`.
"""

from collections.abc import Callable, Iterator, Mapping

from bireme.core.actions import Action, Log, Release, Send
from bireme.core.gathering import RelaySums
from bireme.wire.messages import Declined, Fetch, Pull, PullEntry, Value

__all__ = ("PATIENCE_S", "Fetchings")

PATIENCE_S = 0.1
"""How long the question of one worker waits for the same one of the others; little beside what
values take that are worth sparing, and only the first time where the others do not ask."""

_MOST_ALONE = 4096
_LONGEST_PAUSE = 8

_Slots = tuple[tuple[int, int], ...]
_Shape = tuple[int, _Slots]


class _Fetching:
    """A question to a server, and who is to have the answer.

    Attributes:
        clients: Link and request of each rank that asks.
        request: Number of the question once it has been sent.
        due_s: When it is sent, or sent again.
    """

    __slots__ = (
        "clients",
        "due_s",
        "first",
        "message",
        "pause_s",
        "priority",
        "request",
        "server",
        "unanswered",
    )

    def __init__(self, first: Fetch, due_s: float) -> None:
        self.server = first.server
        self.first = first
        self.priority = first.priority
        self.clients: dict[int, tuple[int, int]] = {}
        self.request: int | None = None
        self.due_s = due_s
        self.pause_s = 0.0
        self.unanswered = {
            (entry.key_id, entry.index): first.min_version + entry.lead for entry in first.entries
        }

    def question(self, view: int) -> Pull:
        """Return the message for what has not been answered."""
        assert self.request is not None
        least = min(self.unanswered.values(), default=0)
        entries = tuple(
            PullEntry(*slot, version - least) for slot, version in self.unanswered.items()
        )
        return Pull(self.request, view, least, self.priority, entries)

    def answered(self, slots: list[tuple[int, int]]) -> bool:
        """Note that these slots are answered; return whether all are."""
        for slot in slots:
            self.unanswered.pop(slot, None)
        return not self.unanswered


class Fetchings:
    """All that is being fetched.

    Args:
        workers: Rank of each attached worker by its link; the relay keeps it up to date.
        link_to: Returns the link to a server, if there is one now.
        sums: Makes the copy that all workers are given.
        numbers: Gives each question its number.
        pause_s: After which a question without an answer is sent again; doubles.

    Guarantees:
        A question is sent after every worker that shares it has asked, so that the answer is as
        new as each of them would have got by itself. Memory: a few numbers for each question.
    """

    def __init__(
        self,
        workers: Mapping[int, int],
        link_to: Callable[[int], int | None],
        sums: RelaySums,
        numbers: Iterator[int],
        pause_s: float,
    ) -> None:
        self._workers = workers
        self._link_to = link_to
        self._sums = sums
        self._numbers = numbers
        self._pause_s = pause_s
        self._gathering: dict[tuple[int, _Slots, int], _Fetching] = {}
        self._sent: dict[int, _Fetching] = {}
        self._alone: dict[_Shape, tuple[float, int]] = {}
        """When, and by whom, what not everybody asks for was asked for last."""

    @property
    def is_waiting(self) -> bool:
        """Whether a server owes an answer."""
        return bool(self._sent)

    def next_deadline_s(self) -> float | None:
        """Return when ``tick`` has something to do."""
        every = (*self._gathering.values(), *self._sent.values())
        return min((each.due_s for each in every), default=None)

    def ask(self, link: int, message: Fetch, view: int, now_s: float) -> list[Action]:
        """Take a worker's question. Asked again, only where its answer goes changes."""
        rank, client = message.rank, (link, message.request)
        for known in (*self._gathering.values(), *self._sent.values()):
            if known.clients.get(rank, (0, -1))[1] == message.request:
                known.clients[rank] = client
                return []
        actions: list[Action] = []
        shape = _shape_of(message)
        key = (*shape, message.min_version)
        found = self._gathering.get(key)
        if found is not None and rank in found.clients:
            # A second question of one worker may want something newer than its first.
            actions += self._send(found, view, now_s)
            found = None
        if found is None:
            due_s = now_s + self._patience_s(shape, rank, now_s)
            found = self._gathering[key] = _Fetching(message, due_s)
        found.clients[rank] = client
        found.priority = max(found.priority, message.priority)
        if self._has_all(found):
            actions += self._send(found, view, now_s)
        elif now_s >= found.due_s:
            actions += self._send_alone(found, view, now_s)
        return actions

    def answer(self, message: Value, payload: object) -> list[Action]:
        """Hand values to all who asked for them."""
        fetching = self._sent.get(message.request)
        if fetching is None:
            return []
        copy = None if payload is None else self._sums.copy(payload)
        body = () if copy is None else (copy,)
        actions: list[Action] = [
            Send(
                link,
                Value(request, message.view, message.version, message.entries),
                body,
                fetching.priority,
            )
            for link, request in fetching.clients.values()
            if link in self._workers
        ]
        if copy is not None:
            actions.append(Release(copy))
        if fetching.answered([(entry.key_id, entry.index) for entry in message.entries]):
            del self._sent[message.request]
        return actions

    def decline(self, request: int | None, reason: str) -> list[Action]:
        """A server does not answer: each worker asks by itself, and hears why."""
        fetching = None if request is None else self._sent.pop(request, None)
        if fetching is None:
            return []
        told: list[Action] = [
            Send(link, Declined(number, reason))
            for link, number in fetching.clients.values()
            if link in self._workers
        ]
        return [*told, Log("info", f"the relay declines a pull: {reason}")]

    def reached(self, server: int, view: int, now_s: float) -> list[Action]:
        """A link to a server is up: ask by it what it may not have heard."""
        waiting = [each for each in self._sent.values() if each.server == server]
        return [action for each in waiting for action in self._question(each, view, now_s)]

    def without(self, rank: int, view: int, now_s: float) -> list[Action]:
        """A worker is gone: nobody waits for it, and it gets no answers."""
        actions: list[Action] = []
        for number, fetching in list(self._sent.items()):
            if fetching.clients.pop(rank, None) is not None and not fetching.clients:
                del self._sent[number]
        for key, fetching in list(self._gathering.items()):
            fetching.clients.pop(rank, None)
            if not fetching.clients:
                del self._gathering[key]
            elif self._has_all(fetching):
                actions += self._send(fetching, view, now_s)
        return actions

    def tick(self, view: int, now_s: float) -> list[Action]:
        """Send what has waited long enough for others, and again what got no answer."""
        actions: list[Action] = []
        for fetching in list(self._gathering.values()):
            if now_s >= fetching.due_s:
                actions += self._send_alone(fetching, view, now_s)
        for fetching in list(self._sent.values()):
            if now_s < fetching.due_s:
                continue
            if self._link_to(fetching.server) is None and fetching.pause_s > self._pause_s:
                actions += self.decline(fetching.request, "its server is out of reach")
            else:
                # A pull changes nothing: to ask again costs no more than to ask about it.
                fetching.pause_s = min(2 * fetching.pause_s, _LONGEST_PAUSE * self._pause_s)
                actions += self._question(fetching, view, now_s)
        return actions

    def _has_all(self, fetching: _Fetching) -> bool:
        return set(self._workers.values()) <= set(fetching.clients)

    def _send(self, fetching: _Fetching, view: int, now_s: float) -> list[Action]:
        shape = _shape_of(fetching.first)
        del self._gathering[(*shape, fetching.first.min_version)]
        fetching.request = next(self._numbers)
        fetching.pause_s = self._pause_s
        self._sent[fetching.request] = fetching
        return self._question(fetching, view, now_s)

    def _send_alone(self, fetching: _Fetching, view: int, now_s: float) -> list[Action]:
        """Send what not everybody has asked for in time; the next one like it will not wait."""
        if len(self._alone) >= _MOST_ALONE:
            self._alone.clear()
        self._alone[_shape_of(fetching.first)] = now_s, fetching.first.rank
        return self._send(fetching, view, now_s)

    def _question(self, fetching: _Fetching, view: int, now_s: float) -> list[Action]:
        fetching.due_s = now_s + fetching.pause_s
        link = self._link_to(fetching.server)
        if link is None:
            return []
        return [Send(link, fetching.question(view), (), fetching.priority)]

    def _patience_s(self, shape: _Shape, rank: int, now_s: float) -> float:
        last = self._alone.get(shape)
        if last is None:
            return PATIENCE_S
        asked_s, other = last
        if other != rank and now_s < asked_s + PATIENCE_S:
            # Several ask for it after all.
            del self._alone[shape]
            return PATIENCE_S
        return 0.0


def _shape_of(message: Fetch) -> _Shape:
    return message.server, tuple((entry.key_id, entry.index) for entry in message.entries)
