"""One rank's place in its machine's bank: shared areas, the steps, and who does what.

The collectives are in `reducing.py` and `moving.py`; they are functions of a `Bank`.
Called by the process group of the backend ``bireme``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bireme.collective.bank.elements import Array, Elements, Reduction, elements_of
from bireme.collective.bank.meeting import Store, meet
from bireme.collective.bank.segment import LABEL_BYTES, MOST_OFFERS, Layout, Segment
from bireme.collective.bank.steps import Steps
from bireme.collective.bank.strewn import Places, Strewn
from bireme.errors import MismatchError

if TYPE_CHECKING:
    import numpy as np

__all__ = ("Bank",)

RUN_BYTES = 1 << 19
"""What a rank reduces in a step at most: the areas of two ranks then fit the cache of a core or
two, and four on two cores sleep less often than with half of it."""
MOST_AREA_BYTES = 1 << 21
"""What a rank writes in a step at most, for all ranks together."""
FLAT_BYTES = 1 << 16
"""Up to here every rank adds everything up itself: one sleep in place of two."""
JOINT_BYTES = 1 << 18
"""What small operations that are carried out as one have altogether at most."""
_MOST_STREWN = 8
"""How many bunches of tensors are known: those of a step, which comes again."""
_PAGE_BYTES = 4096


class Bank:
    """The bank of a machine, as one of its ranks sees it. One thread at a time.

    Args:
        segment: The shared memory.
        names: Each member's rank in the whole group, for messages.
        first_step: See `Steps`; for tests.

    Attributes:
        rank: This rank's number in the bank, >= 0.
        size: How many ranks the bank has.
    """

    def __init__(
        self, segment: Segment, names: Sequence[int] | None = None, first_step: int = 0
    ) -> None:
        self.rank = segment.rank
        self.size = segment.layout.num_ranks
        self.names = list(names) if names is not None else list(range(self.size))
        self.area_bytes = segment.layout.area_bytes
        self.flat_bytes = min(FLAT_BYTES, self.area_bytes)
        self.joint_bytes = min(JOINT_BYTES, self.area_bytes)
        self.most_offers = MOST_OFFERS
        self.steps = Steps(segment, self.names, first_step)
        self._segment = segment
        self._areas = [[segment.area(rank, odd) for rank in range(self.size)] for odd in (0, 1)]
        self._labels = [[segment.label(rank, odd) for rank in range(self.size)] for odd in (0, 1)]
        ranks = range(self.size)
        self._offers = [[segment.offers_word(rank, odd) for rank in ranks] for odd in (0, 1)]
        self._words = segment.words
        self._num_offers = 0
        self._elements: dict[tuple[torch.dtype, Reduction | None], Elements] = {}
        self._views: dict[torch.dtype, list[list[Array]]] = {}
        self._strewn: dict[tuple[object, ...], Strewn] = {}
        self._label = b""

    @classmethod
    def join(
        cls,
        store: Store,
        rank: int,
        members: Sequence[int],
        timeout_s: float,
        area_bytes: int | None = None,
    ) -> "Bank":
        """Return the bank of this machine's ranks; each of them calls this.

        Args:
            store: A ``torch.distributed`` store with keys of its own for this bank.
            rank: This rank in the whole group.
            members: The group's ranks on this machine, in order.
            timeout_s: How long to wait for the others.
            area_bytes: What a rank writes in a step at most, the same for every rank; for tests.

        Raises:
            WaitTimeout: Somebody did not come; named.
            RankLost: Somebody came and died.
        """
        if area_bytes is None:
            area_bytes = min(len(members) * RUN_BYTES, MOST_AREA_BYTES)
        area_bytes = max(-(-area_bytes // _PAGE_BYTES), 1) * _PAGE_BYTES
        layout = Layout(len(members), area_bytes)
        return cls(meet(store, rank, members, layout, timeout_s), members)

    def elements(self, dtype: torch.dtype, op: Reduction | None = None) -> Elements:
        """Return how to handle elements of a type; see `elements_of`."""
        found = self._elements.get((dtype, op))
        if found is None:
            found = self._elements[dtype, op] = elements_of(dtype, op)
        return found

    def areas(self, dtype: torch.dtype) -> list[list[Array]]:
        """Return everybody's areas as elements of a type: first those of even steps, then odd."""
        found = self._views.get(dtype)
        if found is None:
            view = self.elements(dtype).view
            found = self._views[dtype] = [[view(area) for area in half] for half in self._areas]
        return found

    def strewn(
        self, dtype: torch.dtype, op: Reduction, places: Places, factors: tuple[float, float]
    ) -> Strewn:
        """Return many tensors as one, made anew unless it is known from the last steps.

        What is known of memory is used only while tensors lie there: those of ``places``.
        """
        key = (dtype, op, factors, places)
        found = self._strewn.get(key)
        if found is None:
            if len(self._strewn) >= _MOST_STREWN:
                self._strewn.clear()
            found = self._strewn[key] = Strewn(self.elements(dtype, op), places, *factors)
        return found

    @property
    def raw_areas(self) -> "list[list[np.ndarray[Any, Any]]]":
        """Everybody's areas as bytes."""
        return self._areas

    def begin(self, label: str, timeout_s: float, offers: Sequence[int] = ()) -> None:
        """Start an operation.

        Args:
            label: What it is, equal on all ranks if they agree; 64 bytes of it count.
            timeout_s: How long it may take.
            offers: Operations of the same kind that this rank would carry out at once with this
                one: their numbers of elements, `most_offers` of them at most.

        Raises:
            StateError: The bank cannot be used any more.
        """
        self.steps.begin(label, timeout_s)
        self._label = label.encode()[:LABEL_BYTES].ljust(LABEL_BYTES)
        odd = self.steps.step & 1
        self._labels[odd][self.rank][:] = self._label
        word = self._offers[odd][self.rank]
        self._words[word] = self._num_offers = len(offers)
        for number, length in enumerate(offers, word + 1):
            self._words[number] = length

    def end_first_step(self) -> int:
        """End the operation's first step, and see that all ranks are in the same operation.

        Returns:
            How many of this rank's offers all others have made too, as their first.

        Raises:
            MismatchError: They are not. Every rank raises it, and the next operation may be right.
        """
        odd = self.steps.step & 1
        self.steps.end_step()
        mine = self._label
        for label in self._labels[odd]:
            if label != mine:
                found = [bytes(label) for label in self._labels[odd]]
                raise MismatchError(_disagreement(found, self.names))
        return self._num_agreed(self._offers[odd]) if self._num_offers else 0

    def _num_agreed(self, offers: Sequence[int]) -> int:
        words, number = self._words, self._num_offers
        mine = words[offers[self.rank] + 1 : offers[self.rank] + 1 + number].tolist()
        for word in offers:
            number = min(number, words[word])
            theirs = words[word + 1 : word + 1 + number].tolist()
            while theirs != mine[:number]:
                number -= 1
                theirs.pop()
        return number

    def close(self) -> None:
        """Leave. The others' next operation raises; what they have begun without us goes on."""
        self.steps.leave()
        self._areas, self._labels = [], []
        self._views, self._strewn = {}, {}
        self._segment.close()


def _disagreement(found: Sequence[bytes], names: Sequence[int]) -> str:
    ranks: dict[str, list[str]] = {}
    for name, label in zip(names, found, strict=True):
        ranks.setdefault(label.decode(errors="replace").strip(), []).append(str(name))
    told = "; ".join(
        f"rank{'s' if len(who) > 1 else ''} {', '.join(who)}: {what}" for what, who in ranks.items()
    )
    return f"the ranks call different operations: {told}"
