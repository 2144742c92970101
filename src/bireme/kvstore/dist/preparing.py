"""From the arguments of a push or pushpull to what travels, and where its results go.

Called by :class:`~bireme.kvstore.dist.store.DistStore`. Everything is checked before anything is
sent.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch

from bireme.core.bunches import Bunch
from bireme.kvstore import calls
from bireme.kvstore.base import Key, Values
from bireme.kvstore.calls import Pull, Push
from bireme.kvstore.dist.entry import DistEntry
from bireme.kvstore.dist.receiving import Receipt
from bireme.kvstore.dist.routine import Allocate, Routines
from bireme.kvstore.dist.sending import Sender
from bireme.kvstore.dist.server_optimizer import ServerOptimizer
from bireme.kvstore.keys import to_keys
from bireme.kvstore.reduce.overlap import are_disjoint
from bireme.node.landing import Landing
from bireme.node.parcels import Parcel
from bireme.node.tickets import Place, Slot
from bireme.node.worker import PushItem

__all__ = ("Preparer", "Pushed", "Work", "outs_of", "receipts_of")

Found = tuple[list[Key], bool, list[DistEntry]]
"""Keys as they were given, whether as a list, and their entries, each once."""


class Work(NamedTuple):
    """One pushpull, ready to go."""

    items: list[PushItem]
    places: Mapping[Slot, Place]
    bunches: list[tuple[Bunch, Parcel]]
    endings: Sequence[Callable[[], None]]

    def finish(self) -> None:
        """Do what is left when the results have come."""
        for end in self.endings:
            end()


class Pushed(NamedTuple):
    """One push, ready to go."""

    items: list[PushItem]
    bunches: list[tuple[Bunch, Parcel]]


class Preparer:
    """Prepares the pushes of one store.

    Args:
        find: Returns what a call's keys are; refuses unknown ones, and all in a closed store.
        refuse_closed: Raises if the store is closed.
        sender: Merges, compresses and cuts values.
        optimizer: The servers' optimizer, which says what it cannot take.
        routines: Keys that were pushed together before.
    """

    def __init__(
        self,
        find: Callable[[Key | Sequence[Key]], Found],
        refuse_closed: Callable[[], None],
        sender: Sender,
        optimizer: ServerOptimizer,
        routines: Routines,
    ) -> None:
        self._find = find
        self._refuse_closed = refuse_closed
        self._sender = sender
        self._optimizer = optimizer
        self._routines = routines

    def pushes(
        self, key: Key | Sequence[Key], value: Values
    ) -> tuple[list[DistEntry], list[Push[DistEntry]]]:
        """Return what is to be pushed, checked."""
        keys, is_list, entries = self._find(key)
        pushes = calls.pushes(entries, keys, is_list, value)
        for push in pushes:
            self._sender.check(push)
        self._optimizer.refresh()
        self._optimizer.check(pushes)
        return entries, pushes

    def pushpull(self, key: Key | Sequence[Key], value: Values, out: Values | None) -> Work:
        """Return what a pushpull sends, and where its results go."""
        self._refuse_closed()
        target = value if out is None else out
        work = self._repeated(key, value, target)
        if work is not None:
            return work
        entries, pushes = self.pushes(key, value)
        keys, is_list = to_keys(key)
        targets = calls.pulls(entries, keys, is_list, target)
        self._remember(key, entries)
        items = self.items(entries, pushes, borrow=_may_borrow(pushes, targets))
        receipts, places = receipts_of(outs_of(entries, targets))
        return Work(items, places, [], [receipt.finish for receipt in receipts])

    def push(self, key: Key | Sequence[Key], value: Values, allocate: Allocate) -> Pushed:
        """Return what a push sends, copied.

        Args:
            key: As of `KVStore.push`.
            value: Likewise.
            allocate: Makes memory that frames can be sent from.
        """
        self._refuse_closed()
        if not self._sender.compresses:
            keys, values = _as_lists(key, value)
            routine = self._routines.find(keys)
            sending = None
            if routine is not None and isinstance(values, (list, tuple)):
                sending = routine.push(values, allocate)
            if routine is not None and sending is not None:
                self._optimizer.refresh()
                self._optimizer.check(routine.pushes)
                return Pushed([], sending)
        entries, pushes = self.pushes(key, value)
        self._remember(key, entries)
        return Pushed(self.items(entries, pushes, borrow=False), [])

    def pull(self, key: Key | Sequence[Key], out: Values) -> Landing | None:
        """Return where a pull of keys that were used together before goes; else ``None``."""
        keys, outs = _as_lists(key, out)
        routine = self._routines.find(keys)
        if routine is None or not isinstance(outs, (list, tuple)):
            return None
        return routine.pull(outs)

    def _remember(self, key: Key | Sequence[Key], entries: Sequence[DistEntry]) -> None:
        """Prepare a routine for the next time, where no key comes twice."""
        keys, _ = to_keys(key)
        if len(keys) == len(entries) and self._routines.find(keys) is None:
            self._routines.add(entries)

    def items(
        self, entries: Sequence[DistEntry], pushes: Sequence[Push[DistEntry]], *, borrow: bool
    ) -> list[PushItem]:
        """Return checked pushes in the form in which they leave."""
        with torch.no_grad():
            return [
                item
                for entry, push in zip(entries, pushes, strict=True)
                for item in self._sender.items(entry, push, borrow=borrow)
            ]

    def _repeated(self, key: Key | Sequence[Key], value: Values, target: Values) -> Work | None:
        """Return the work of keys that were pushed together before; ``None`` if it is not so."""
        if self._sender.compresses:
            return None
        keys, values = _as_lists(key, value)
        targets: object = [target] if keys is not key else target
        if not (isinstance(values, (list, tuple)) and isinstance(targets, (list, tuple))):
            return None
        routine = self._routines.find(keys)
        exchange = None if routine is None else routine.exchange(values, targets)
        if routine is None or exchange is None:
            return None
        self._optimizer.refresh()
        self._optimizer.check(routine.pushes)
        bunches, landing = exchange
        written = partial(torch.autograd.graph.increment_version, targets)
        return Work([], landing, bunches, [written])


def _as_lists(key: object, value: object) -> tuple[object, object]:
    """Return a key that stands alone as a list of one, and its value likewise."""
    return ([key], [value]) if isinstance(key, (str, int)) else (key, value)


def outs_of(
    entries: Sequence[DistEntry], pulls: Sequence[Pull[DistEntry]]
) -> list[tuple[DistEntry, Sequence[torch.Tensor]]]:
    """Return each key with the tensors that its value goes to."""
    return [(entry, pull.outs) for entry, pull in zip(entries, pulls, strict=True)]


def receipts_of(
    targets: Sequence[tuple[DistEntry, Sequence[torch.Tensor]]],
) -> tuple[list[Receipt], dict[Slot, Place]]:
    """Return what finishes each key, and the place of each slot's value."""
    receipts = [Receipt(entry, outs) for entry, outs in targets]
    places: dict[Slot, Place] = {}
    for receipt in receipts:
        places |= receipt.places()
    return receipts, places


def _may_borrow(pushes: Sequence[Push[DistEntry]], pulls: Sequence[Pull[DistEntry]]) -> bool:
    """Return whether values may be sent from the caller's memory while results are written.

    A part of a key is written when that part has been sent and summed, so a result may replace its
    own value, but not share memory with any other.
    """
    in_place = all(
        len(push.values) == len(pull.outs) == 1 and push.values[0] is pull.outs[0]
        for push, pull in zip(pushes, pulls, strict=True)
    )
    outs = [out for pull in pulls for out in pull.outs]
    values = [] if in_place else [value for push in pushes for value in push.values]
    return not any(each.is_sparse for each in values) and are_disjoint([*values, *outs])
