"""What a consistency model is: a ledger for each slot of who has contributed what.

The server's state machine asks it; nothing here knows of values, links or time. A set of ranks is
an ``int`` with bit ``rank`` set, which stays fast for thousands of workers.
"""

from collections.abc import Iterable
from typing import ClassVar, Protocol

__all__ = ("Ledger", "mask_of", "ranks_in")


class Ledger(Protocol):
    """Counts the contributions to one slot and decides when they are applied and answered.

    The pushes of one rank to one slot are numbered 0, 1, 2, ...; ``(slot, number, rank)`` names
    a contribution, whichever incarnation of the rank sends it.

    Guarantees:
        A number below ``expected(rank)`` was recorded before, one above it has a gap; so each
        contribution is recorded exactly once. Memory does not grow with time.
    """

    pools: ClassVar[bool]
    """Contributions of several ranks are added up before they are applied."""

    needs_updater: ClassVar[bool]
    """Pushes make sense only where an optimizer applies them."""

    version: int
    """How often the value has been changed since it was initialised."""

    def expected(self, rank: int) -> int:
        """Return the number that the next contribution of ``rank`` must carry."""

    def record(self, rank: int) -> None:
        """Note that the contribution ``expected(rank)`` was taken in."""

    def ready(self, awaited: int) -> bool:
        """Return whether what was taken in is to be applied now.

        Args:
            awaited: The ranks whose contributions are waited for.
        """

    def advance(self) -> None:
        """Note that what was taken in has been applied: the version grows by one."""

    def answered(self, rank: int) -> int:
        """Return the number below which the pushes of ``rank`` may be acknowledged."""

    def visible(self, rank: int, minimum: int) -> bool:
        """Return whether the value holds the first ``minimum`` pushes of ``rank``."""

    def missing(self, awaited: int) -> int:
        """Return the ranks that others wait for: to have a round applied, or to be let go on."""

    def follow(self, awaited: int) -> None:
        """Note who is awaited from now on; ranks that are gone hold nobody up."""


def mask_of(ranks: Iterable[int]) -> int:
    """Return the set of ``ranks`` as bits.

    Example:
        >>> mask_of([0, 3])
        9
    """
    mask = 0
    for rank in ranks:
        mask |= 1 << rank
    return mask


def ranks_in(mask: int) -> list[int]:
    """Return the ranks of a set, ascending.

    Example:
        >>> ranks_in(9)
        [0, 3]
    """
    ranks = []
    while mask:
        low = mask & -mask
        ranks.append(low.bit_length() - 1)
        mask ^= low
    return ranks
