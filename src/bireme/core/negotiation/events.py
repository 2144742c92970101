"""What happens to the coordinator, and what it wants done. Plain values."""

from typing import NamedTuple

from bireme.core.negotiation.messages import Report, Verdict

__all__ = ("Absorbed", "Action", "Departed", "Event", "Noted", "Reported", "Send", "Ticked", "Warn")


class Reported(NamedTuple):
    """A report of ``rank`` is here."""

    rank: int
    report: Report


class Departed(NamedTuple):
    """The connection to ``rank`` is gone, without a farewell."""

    rank: int
    reason: str


class Absorbed(NamedTuple):
    """The board has been frozen, before anything else happens."""

    epoch: int
    """The verdict that opened it."""
    posted: list[int]
    """By rank: slots that it had posted, and that did not run."""
    ran: int
    """Slots that ran since it was opened."""


class Ticked(NamedTuple):
    """Time has passed."""


Event = Reported | Departed | Ticked | Absorbed


class Send(NamedTuple):
    """Give ``verdict`` to ``rank``, after those before it."""

    rank: int
    verdict: Verdict


class Warn(NamedTuple):
    """Tell the user."""

    text: str


class Noted(NamedTuple):
    """For a timeline: ``rank`` has submitted ``name``; the first one, or, with -1, all have."""

    name: str
    kind: str
    rank: int
    is_first: bool


Action = Send | Warn | Noted
