"""The arithmetic that a server's state machine is given: it never looks into a payload itself.

:class:`SlotValues` is implemented over torch by ``node`` and over plain floats by ``sim``. The
core decides *which* contributions are added, in which order, and when a round is done.
"""

from collections.abc import Sequence
from typing import Protocol

from bireme.wire.messages import CommandKind, InitEntry, PushEntry

__all__ = ("Answer", "SlotValues")

Answer = tuple[dict[str, object], object, int]
"""Body, payload handle (``None`` when there is none) and payload bytes of a command's answer."""


class SlotValues(Protocol):
    """Holds the values of a server's slots and computes on them.

    A *cell* is whatever the implementation keeps for one slot, and a *partial* whatever it keeps
    for a sum of some contributions to the open round; both are opaque to the core.

    Guarantees expected by the core:
        Calls come from one thread, one at a time. The ``check_*`` methods change nothing and
        raise ``ConfigError``, ``UnsupportedError`` or ``StateError`` for what cannot be done;
        what they let pass, the others do. ``first``, ``add`` and ``merge`` give bits that do
        not depend on which of two summands came first: a contribution is decoded, converted to
        the type of the sum and multiplied by its weight (skipped for 1.0) with a rounding of its
        own (no fused multiply-add), then added. A payload is read during the call only.
        ``finish`` never leaves a half-updated value behind, and never changes memory that
        ``read`` has handed out and that has not been sent yet.
    """

    def check_init(self, entry: InitEntry) -> None:
        """Raise unless ``initialise`` can take ``entry``."""

    def initialise(
        self, store: int, entry: InitEntry, payload: object, offset_bytes: int
    ) -> object:
        """Return the cell of a new slot with its first value.

        Args:
            store: Number of the store that the key belongs to.
            entry: Type, length and size of the value; ``payload_bytes`` 0 means zeros.
            payload: Payload of the ``Init``.
            offset_bytes: Where in it this entry's bytes start.
        """

    def can_update(self, store: int) -> bool:
        """Return whether an optimizer applies the pushes of this store (needed when async)."""

    def check_push(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int
    ) -> None:
        """Raise unless ``first`` and ``add`` can take this contribution.

        Called before anything of the message is applied: size against length, row numbers in
        range, encoding and layout that the slot and its optimizer can take.
        """

    def first(
        self, cell: object, entry: PushEntry, payload: object, offset_bytes: int, weight: float
    ) -> object:
        """Return a partial that is this contribution times ``weight``."""

    def add(
        self,
        cell: object,
        partial: object,
        entry: PushEntry,
        payload: object,
        offset_bytes: int,
        weight: float,
    ) -> object:
        """Return ``partial`` plus this contribution times ``weight``; ``partial`` is used up."""

    def merge(self, partial: object, other: object) -> object:
        """Return the sum of two partials of one slot; both are used up."""

    def seen(self, cell: object, rank: int, version: int) -> None:
        """Note that ``rank`` is being sent the current value, of ``version``.

        Called only where contributions are applied one by one.
        """

    def corrected(self, cell: object, total: object, rank: int) -> object:
        """Return a contribution of ``rank`` as it should be applied to the current value.

        Called only where contributions are applied one by one, before ``finish``.

        Args:
            cell: The slot.
            total: The contribution, which was computed from what ``rank`` was last sent; used up.
            rank: Whose it is.
        """

    def finish(
        self, cell: object, total: object, numerator: float, denominator: float, version: int
    ) -> None:
        """Make the sum of a round the slot's value, or give it to the optimizer.

        Args:
            cell: The slot.
            total: The partial of all contributions, times ``numerator`` (skipped for 1.0), then
                divided by ``denominator`` (skipped for 1.0); used up.
            numerator: > 0, or 0 when what was taken in weighs nothing: an optimizer is not to
                step then.
            denominator: > 0.
            version: Rounds in the value after this one (pushes applied, when async).
        """

    def join(self, cells: Sequence[object]) -> object | None:
        """Return one cell that stands for several, with their values side by side.

        None when they cannot be joined, since their types differ or an optimizer changes them;
        nothing has changed then. Until ``part`` the cells themselves are not used.

        Args:
            cells: Of slots of one store that are given raw dense pushes, in this order.
        """

    def part(self, cell: object, partials: Sequence[object]) -> list[list[object]]:
        """End what ``join`` made: the cells have the values that it had.

        Args:
            cell: From ``join``; used up.
            partials: Of that cell; used up.

        Returns:
            For each of ``partials`` its parts, one for each cell.
        """

    def read(self, cell: object) -> tuple[object, int, str]:
        """Return a handle of the current value's bytes, their number, and their encoding.

        The encoding is ``raw``, the value's own type, or one that loses nothing of this value.
        """

    def read_rows(self, cell: object, payload: object, num_ids: int) -> tuple[object, int]:
        """Return a handle of some rows' bytes and their number.

        Args:
            cell: The slot.
            payload: ``num_ids`` int64 row numbers within the slot.
            num_ids: How many.

        Raises:
            ConfigError: A row number is out of range; nothing is read.
        """

    def command(
        self, store: int, command: CommandKind, body: dict[str, object], payload: object
    ) -> Answer:
        """Do what a worker asked for and return the answer; only ``SAVE_STATE`` has a payload.

        ``SET_OPTIMIZER`` with the optimizer that is already there keeps its state and takes over
        the numbers, so that a replacement that sets it again resets nothing.

        Raises:
            ConfigError: The body is wrong; nothing changed. ``UnsupportedError`` and
                ``StateError`` likewise.
        """

    def report(self) -> dict[str, object]:
        """Return what people may want to know of the values, as plain data."""
