"""A rank's side of the negotiation: what it has submitted, and what slots mean to it. PURE.

The engine submits names with whatever it needs to run them, sends the reports, and carries out the
orders that come of verdicts.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

from bireme.core.negotiation.fusion import Bucket, Planned, elements_of, fuse
from bireme.core.negotiation.messages import (
    Ended,
    Failed,
    Fault,
    Forget,
    Key,
    Learned,
    Opened,
    Report,
    Request,
    Run,
    Settled,
    Verdict,
    bits,
    mask_of,
    packed,
)
from bireme.errors import ConfigError, RemoteProtocolError

__all__ = ("Execute", "Fail", "Member", "Order", "Settle", "Stop")

_MOST_PLANS = 256

Ticket = TypeVar("Ticket")


class Execute(NamedTuple):
    """Run these buckets, one after the other."""

    buckets: list[Bucket]


class Fail(NamedTuple):
    """An operation failed."""

    key: Key
    fault: Fault
    message: str


class Settle(NamedTuple):
    """An operation without data is over."""

    request: Request
    value: int


class Stop(NamedTuple):
    """Nothing runs any more."""

    fault: Fault
    message: str


Order = Execute | Fail | Settle | Stop


@dataclass(slots=True, eq=False)
class _Entry:
    """What a slot means to this rank."""

    bit: int
    signature: Hashable
    key: Key
    planned: Planned


# What is under way: its signature, its ticket, and what makes its request. A plain tuple, as there
# may be hundreds in a step.
_Flying = tuple[Hashable, Ticket, Callable[[], Request]]
_TICKET_OF = itemgetter(1)


class Member(Generic[Ticket]):
    """One rank's books.

    Args:
        threshold_bytes: See `fusion.fuse`; the same on all ranks.
        board_slots: Slots from here on are not posted on a board.

    Attributes:
        epoch: The verdict that opened the board, if nothing has come since; else 0.
        posted: Slots that are posted and have not run.
    """

    def __init__(self, threshold_bytes: int, board_slots: int = 0) -> None:
        self._threshold_bytes = threshold_bytes
        self._board_slots = board_slots
        self._off_board = 0
        self.epoch = 0
        self.posted = 0
        self._seen = 0
        self._hits = 0
        self._requests: list[Request] = []
        self._known: dict[Key, _Entry] = {}
        self._slots: dict[int, _Entry] = {}
        self._flying: dict[Key, _Flying[Ticket]] = {}
        self._plans: dict[bytes, list[Bucket]] = {}

    def __len__(self) -> int:
        """Return how many operations are under way."""
        return len(self._flying)

    @property
    def has_news(self) -> bool:
        """Whether `report` has something to say."""
        return self._hits != 0 or bool(self._requests)

    @property
    def postable(self) -> int:
        """What there is to report, if all of it can be posted on the board instead; else 0."""
        if not self.epoch or self._requests or self._hits & self._off_board:
            return 0
        return self._hits

    def has_posted(self) -> None:
        """Note that what was `postable` is on the board."""
        self.posted |= self._hits
        self._hits = 0

    def run(self, mask: int) -> Execute:
        """Return what to do for slots that the board says run; after those before."""
        self.posted &= ~mask
        return Execute(self._plan(packed(mask)))

    def signature_of(self, key: Key) -> Hashable:
        """Return the signature with which an operation is known to all ranks, or None."""
        entry = self._known.get(key)
        return None if entry is None else entry.signature

    def check_free(self, key: Key) -> None:
        """Refuse a name that is under way.

        Raises:
            ConfigError: It is.
        """
        if key in self._flying:
            raise ConfigError(
                f"{key[1]} is under way already on this rank; wait for it before submitting "
                "another operation of this name, or give them different names"
            )

    def submit(
        self, key: Key, signature: Hashable, ticket: Ticket, make: Callable[[], Request]
    ) -> None:
        """Submit an operation whose name is free.

        Args:
            key: Its set and name.
            signature: Equal for two operations of one name only if ``make`` gives equal requests.
            ticket: What `ticket` returns for it.
            make: Makes the request, if the coordinator has to be told.
        """
        self._flying[key] = (signature, ticket, make)
        entry = self._known.get(key)
        if entry is not None and entry.signature == signature:
            self._hits |= entry.bit
        else:
            self._requests.append(make())

    def submit_again(
        self, key: Key, signature: Hashable, ticket: Ticket, make: Callable[[], Request]
    ) -> bool | None:
        """Do as `submit` if all ranks know the operation by this signature.

        Returns:
            None if they do not, and nothing is done; else whether there were no news before.

        Raises:
            ConfigError: The name is under way.
        """
        entry = self._known.get(key)
        if entry is None or entry.signature != signature:
            return None
        if key in self._flying:
            self.check_free(key)
        self._flying[key] = (signature, ticket, make)
        hits = self._hits
        self._hits = hits | entry.bit
        return not (hits or self._requests)

    def take_ticket(self, key: Key) -> Ticket | None:
        """Return the ticket of an operation that ends, and free its name; None: not submitted."""
        flying = self._flying.pop(key, None)
        return None if flying is None else flying[1]

    def take_tickets(self, keys: Sequence[Key]) -> list[Ticket | None]:
        """Do as `take_ticket` for several operations."""
        flying = self._flying
        if all(map(flying.__contains__, keys)):
            return list(map(_TICKET_OF, map(flying.pop, keys)))
        return [self.take_ticket(key) for key in keys]

    def tickets(self) -> list[Ticket]:
        """Return the tickets of all operations under way, and forget them."""
        flying = [each[1] for each in self._flying.values()]
        self._flying.clear()
        return flying

    def report(
        self, *, is_leaving: bool = False, failure: str = "", fault: Fault = Fault.BROKEN
    ) -> Report:
        """Return what has been submitted since the last report."""
        report = Report(self._seen, packed(self._hits), self._requests, is_leaving, failure, fault)
        self._hits = 0
        self._requests = []
        return report

    def take(self, verdict: Verdict) -> list[Order]:
        """Return what to do, in order.

        Raises:
            RemoteProtocolError: The verdict runs a slot that stands for nothing.
        """
        self._seen = verdict.number
        # The coordinator has taken down what was posted before it said anything.
        self.epoch = self.posted = 0
        orders: list[Order] = []
        for item in verdict.items:
            if isinstance(item, Run):
                orders.append(Execute(self._plan(item.mask)))
            elif isinstance(item, Learned):
                self._learn(item)
            elif isinstance(item, Forget):
                self._forget(item.slot)
            elif isinstance(item, Failed):
                orders += (
                    Fail((item.process_set, name), item.fault, item.message) for name in item.names
                )
            elif isinstance(item, Settled):
                orders.append(Settle(item.request, item.value))
            elif isinstance(item, Opened):
                self.epoch = verdict.number
            else:
                orders.append(_stop(item))
        return orders

    def _plan(self, mask: bytes) -> list[Bucket]:
        plan = self._plans.get(mask)
        if plan is None:
            try:
                planned = [self._slots[slot].planned for slot in bits(mask_of(mask))]
            except KeyError as error:
                raise RemoteProtocolError(f"slot {error} stands for nothing here") from None
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[mask] = fuse(planned, self._threshold_bytes)
        return plan

    def _learn(self, item: Learned) -> None:
        self._forget(item.slot)
        key = item.request.key
        flying = self._flying.get(key)
        signature = None if flying is None else flying[0]
        planned = Planned(item.request, item.sizes, elements_of(item.request))
        entry = _Entry(1 << item.slot, signature, key, planned)
        self._known[key] = self._slots[item.slot] = entry
        if key[0] or item.slot >= self._board_slots:
            self._off_board |= entry.bit

    def _forget(self, slot: int) -> None:
        entry = self._slots.pop(slot, None)
        self._plans.clear()
        if entry is None:
            return
        self._off_board &= ~entry.bit
        del self._known[entry.key]
        if self._hits & entry.bit:
            # Submitted and not reported yet, so it is reported by its name; first, since a join
            # that was submitted after it would end without it.
            self._hits ^= entry.bit
            self._requests.insert(0, self._flying[entry.key][2]())


def _stop(item: Ended) -> Stop:
    return Stop(item.fault, item.message)
