"""How much memory is in use, and was at most and at least of late. Pure; called by `BufferPool`."""

__all__ = ("Demand",)

_SPAN = 4
"""A span of time ends when so many times its greatest demand has been taken: on a server, which
takes each value once from every worker, after a few steps."""
_LEAST_WORTH_BYTES = 8 << 20
"""Some pieces of each size that comes and goes: with less, workers took fresh pages each step."""


class Demand:
    """Counts what is in use, and says how much memory is worth holding for it.

    That is as much as was in use at once, so that a demand that rises and falls again finds its
    memory; and twice what is never given back, as the values of a server, each of which is
    replaced by memory that is written while it is still read. What is held beyond that has sizes
    that no longer fit.

    Attributes:
        used_bytes: What has been taken and not been given back.

    Example:
        >>> demand = Demand()
        >>> demand.took(30 << 20); demand.took(10 << 20); demand.gave(20 << 20)
        >>> demand.used_bytes >> 20, demand.worth_bytes >> 20
        (20, 40)
    """

    __slots__ = (
        "_least_before",
        "_least_bytes",
        "_most_before",
        "_most_bytes",
        "_taken_bytes",
        "used_bytes",
    )

    def __init__(self) -> None:
        self.used_bytes = 0
        # Of the span under way, and of the one before it.
        self._most_bytes = self._most_before = 0
        self._least_bytes = self._least_before = 0
        self._taken_bytes = 0

    @property
    def lasting_bytes(self) -> int:
        """How much has not been given back of late."""
        return min(self._least_bytes, self._least_before)

    @property
    def worth_bytes(self) -> int:
        """How much memory is worth holding, in use and idle together."""
        most_bytes = max(self._most_bytes, self._most_before)
        return max(most_bytes, 2 * self.lasting_bytes, _LEAST_WORTH_BYTES)

    def took(self, size_bytes: int) -> None:
        """Count memory that is taken."""
        self.used_bytes += size_bytes
        self._most_bytes = max(self._most_bytes, self.used_bytes)
        self._taken_bytes += size_bytes
        if self._taken_bytes > _SPAN * self._most_bytes:
            self._most_before, self._least_before = self._most_bytes, self._least_bytes
            self._most_bytes = self._least_bytes = self.used_bytes
            self._taken_bytes = 0

    def gave(self, size_bytes: int) -> None:
        """Count memory that is given back."""
        self.used_bytes -= size_bytes
        self._least_bytes = min(self._least_bytes, self.used_bytes)
