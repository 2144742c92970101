"""The order of a worker's pushes: one under way for each slot, and commands as fences.

Called by :mod:`bireme.core.worker` for every slot of a push, so it is written for few steps per
slot. It decides what may go out now and bundles that into requests.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from bireme.core.bunches import Bunch, Cut, Dealer
from bireme.core.calls import InitCall
from bireme.core.opencalls import OpenCall
from bireme.core.questions import CommandRequest
from bireme.core.requests import InitRequest, Lane, PushItem, PushRequest
from bireme.errors import LocalProtocolError
from bireme.types.choices import Consistency, Layout
from bireme.wire.messages import InitEntry, KeyDecl, KeyPlacement

__all__ = ("Lanes",)

R = TypeVar("R")

_InitItem = tuple[InitEntry, object]
_Item = PushItem | _InitItem


class _Fence:
    """What one server has to answer before a command, and what waits behind the command."""

    __slots__ = ("active", "held", "open")

    def __init__(self) -> None:
        self.open = 0
        self.active: CommandRequest | None = None
        self.held: deque[CommandRequest | tuple[OpenCall, Lane, _Item]] = deque()


class Lanes:
    """Orders and bundles pushes.

    Args:
        next_number: Gives the next request its number.
        cut: Takes the payloads of bunches apart.

    Guarantees:
        Pushes of one slot go out in the order they were handed in, each after the one before is
        answered. A command goes to a server after all that was handed in before it is answered,
        and what is handed in later goes out after the command is answered.
    """

    def __init__(self, next_number: Callable[[], int], cut: Cut | None = None) -> None:
        self.bundle_bytes = 0
        """Of the job's configuration, once it has begun."""
        self._next_number = next_number
        self._cut = cut or _refuse_to_cut
        self._fences: dict[int, _Fence] = {}
        self._ready: dict[tuple[OpenCall, int], list[tuple[Lane, _Item]]] = {}
        self._commands: list[CommandRequest] = []
        self._whole: list[PushRequest] = []
        self.by_slot: dict[tuple[int, int], Lane] = {}
        """The slots of all declared keys."""
        self.rank = 0
        self.turn = 0
        """Which server this worker begins with; its rank, unless neighbours begin together."""
        self.span = (0, 1)
        """The shards that this worker's contributions cover."""

    def add_key(self, key: KeyPlacement, decl: KeyDecl | None = None) -> None:
        """Take in the slots of a declared key; a key that is known stays as it is."""
        for index, slot in enumerate(key.slots):
            if (key.key_id, index) not in self.by_slot:
                lane = self.by_slot[key.key_id, index] = Lane(slot.server)
                if decl is not None:
                    lane.dtype = decl.dtype
                    lane.pools = _pools(decl)
            self._fences.setdefault(slot.server, _Fence())

    def add_server(self, server: int) -> None:
        """Take in a server that commands may go to."""
        self._fences.setdefault(server, _Fence())

    def hand_in(self, call: OpenCall, lane: Lane, item: _Item, *, is_push: bool) -> None:
        """Take a push or an init of one slot; it is ready, or waits for what is before it."""
        lane.pending += is_push
        fence = self._fences[lane.server]
        if fence.active is not None or fence.held:
            fence.held.append((call, lane, item))
            return
        self._enter(fence, call, lane, item)

    def hand_in_bunch(self, call: OpenCall, bunch: Bunch, handle: object) -> None:
        """Take the push of a bunch: as one if none of its slots has to wait, else slot by slot."""
        if self.is_free(bunch):
            self._whole.append(self.whole(call, bunch, handle))
            return
        for lane, item in zip(bunch.lanes, bunch.items(handle, self._cut), strict=True):
            self.hand_in(call, lane, item, is_push=True)

    def is_free(self, bunch: Bunch) -> bool:
        """Return whether a push of a bunch may go out now, as one."""
        fence, lanes = self._fences[bunch.server], bunch.lanes
        if fence.active is not None or fence.held:
            return False
        number = lanes[0].number
        for lane in lanes:
            if lane.busy or lane.number != number:
                return False
        return True

    def whole(self, call: OpenCall, bunch: Bunch, handle: object) -> PushRequest:
        """Return the request for a bunch that is free; it is under way from now on."""
        lanes = bunch.lanes
        for lane in lanes:
            lane.busy = True
            lane.pending += 1
        self._fences[bunch.server].open += len(lanes)
        request = PushRequest(self._next_number(), call, bunch.server, self.rank, self.span)
        request.carry(bunch, handle, self._cut)
        return request

    def bunch_answered(self, bunch: Bunch) -> None:
        """Note that the push of a bunch is acknowledged."""
        lanes = bunch.lanes
        for lane in lanes:
            lane.busy = False
            lane.pending -= 1
            lane.number += 1
            if lane.queue:
                call, item = lane.queue.popleft()
                self._start(call, lane, item)
        self._close_fence(bunch.server, len(lanes))

    def command(self, request: CommandRequest) -> None:
        """Take a command for one server."""
        fence = self._fences[request.server]
        fence.held.append(request)
        if fence.open == 0 and fence.active is None:
            self._advance(fence)

    def answered(self, lane: Lane, *, is_push: bool, accepted: bool) -> None:
        """Note that what was under way in ``lane`` is acknowledged or refused."""
        lane.busy = False
        if is_push:
            lane.pending -= 1
            lane.number += accepted
        if lane.queue:
            call, item = lane.queue.popleft()
            self._start(call, lane, item)
        self._close_fence(lane.server, 1)

    def _close_fence(self, server: int, num_answered: int) -> None:
        fence = self._fences[server]
        fence.open -= num_answered
        if fence.open == 0 and fence.held and fence.active is None:
            self._advance(fence)

    def command_answered(self, request: CommandRequest) -> None:
        """Note that the command under way is done or refused; what waits behind it may go."""
        fence = self._fences[request.server]
        if fence.active is request:
            fence.active = None
            self._advance(fence)

    def take_ready(self) -> list[PushRequest | InitRequest | CommandRequest]:
        """Return requests for all that may go out now, the servers taking turns."""
        if not (self._ready or self._commands):
            if not self._whole:
                return []
            if len(self._whole) == 1:
                return [self._whole.pop()]
        by_server: dict[int, list[PushRequest | InitRequest | CommandRequest]] = {}
        for (call, server), items in self._ready.items():
            by_server.setdefault(server, []).extend(self._bundle(call, server, items))
        self._ready.clear()
        for request in self._whole:
            by_server.setdefault(request.server, []).append(request)
        self._whole.clear()
        for command in self._commands:
            by_server.setdefault(command.server, []).append(command)
        self._commands.clear()
        if len(by_server) == 1:
            return by_server.popitem()[1]
        return _take_turns(by_server, self.turn)

    def waiting_servers(self, call: OpenCall) -> set[int]:
        """Return the servers for which something of ``call`` is still held back here."""
        held = {
            lane.server
            for lane in self.by_slot.values()
            if any(queued is call for queued, _ in lane.queue)
        }
        for server, fence in self._fences.items():
            for each in fence.held:
                owner = each.call if isinstance(each, CommandRequest) else each[0]
                if owner is call:
                    held.add(server)
        return held

    def abandon(self) -> Iterator[_Item]:
        """Forget all that has not gone out; yield the items."""
        for lane in self.by_slot.values():
            for _, item in lane.queue:
                yield item
            lane.queue.clear()
        for fence in self._fences.values():
            for each in fence.held:
                if not isinstance(each, CommandRequest):
                    yield each[2]
            fence.held.clear()
        for items in self._ready.values():
            for _, item in items:
                yield item
        self._ready.clear()
        for request in self._whole:
            for _, item in request.items.values():
                yield item
        self._whole.clear()

    def _enter(self, fence: _Fence, call: OpenCall, lane: Lane, item: _Item) -> None:
        fence.open += 1
        if lane.busy:
            lane.queue.append((call, item))
        else:
            self._start(call, lane, item)

    def _start(self, call: OpenCall, lane: Lane, item: _Item) -> None:
        lane.busy = True
        where = (call, lane.server)
        items = self._ready.get(where)
        if items is None:
            self._ready[where] = [(lane, item)]
        else:
            items.append((lane, item))

    def _advance(self, fence: _Fence) -> None:
        """Let go what was held, up to the next command that has something to wait for."""
        while fence.held:
            first = fence.held[0]
            if not isinstance(first, CommandRequest):
                self._enter(fence, *first)
            elif fence.open:
                return
            else:
                fence.active = first
                self._commands.append(first)
                fence.held.popleft()
                return
            fence.held.popleft()

    def _bundle(
        self, call: OpenCall, server: int, items: Iterable[tuple[Lane, _Item]]
    ) -> list[PushRequest | InitRequest]:
        dealer = Dealer(self.bundle_bytes)
        requests: list[PushRequest | InitRequest] = []
        for lane, item in items:
            entry = item[0]
            size = item[3] if isinstance(entry, int) else entry.payload_bytes  # type: ignore[misc]
            number = dealer.place(size)
            if number == len(requests):
                requests.append(self._new_request(call, server))
            request = requests[number]
            if isinstance(entry, int):
                request.items[item[0], item[1]] = (lane, item)  # type: ignore[index,assignment]
            else:
                request.items[entry.key_id, entry.index] = (lane, item)  # type: ignore[assignment]
        return requests

    def _new_request(self, call: OpenCall, server: int) -> PushRequest | InitRequest:
        number = self._next_number()
        if type(call.call) is InitCall:
            return InitRequest(number, call, server, call.call.store)
        return PushRequest(number, call, server, self.rank, self.span)


def _refuse_to_cut(handle: object, sizes: Sequence[int]) -> Sequence[object]:
    raise LocalProtocolError(f"a worker without a way to cut payloads was given {handle!r}")


def _pools(decl: KeyDecl) -> bool:
    return decl.consistency is Consistency.SYNC and decl.layout is not Layout.TABLE


def _take_turns(by_server: dict[int, list[R]], turn: int) -> list[R]:
    """Interleave the lists so that each is used up at the same pace.

    Each turn begins with another server, so that they do not all send to the same one at once.
    """
    servers = sorted(by_server)
    first = turn % len(servers)
    order = sorted(
        ((2 * position + 1) / len(by_server[server]), place, server, position)
        for place, server in enumerate(servers[first:] + servers[:first])
        for position in range(len(by_server[server]))
    )
    return [by_server[server][position] for _, _, server, position in order]
