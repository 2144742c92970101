"""Process sets as the coordinator knows them, and what is under way in each. PURE."""

from dataclasses import dataclass, field

from bireme.core.negotiation.messages import Request

__all__ = ("Doom", "ProcessSet", "Tally")


@dataclass(slots=True, eq=False)
class Doom:
    """A group of which one member failed: the others fail with it when they are ready."""

    message: str
    num_left: int


@dataclass(slots=True, eq=False)
class ProcessSet:
    """Ranks that do something together."""

    number: int
    ranks: tuple[int, ...]
    mask: int = 0
    """Slots of operations in this set."""
    closed: str = ""
    """Why nothing can run in it any more; empty while it can."""
    doomed: dict[str, Doom] = field(default_factory=dict)
    """Groups that failed in part, by their names."""

    def doom(self, name: str, message: str, num_left: int) -> None:
        """Note that so many members of a group are still to fail, for this reason."""
        if num_left > 0:
            self.doomed[name] = Doom(message, num_left)
        else:
            self.doomed.pop(name, None)

    def doom_of(self, request: Request, message: str) -> None:
        """Note that a member of a group, or an operation of no group, failed."""
        if request.group:
            doom = self.doomed.get(request.group)
            left = doom.num_left if doom is not None else request.group_size
            self.doom(request.group, message, left - 1)


@dataclass(slots=True, eq=False)
class Tally:
    """A name that some ranks have submitted, and what each of them said."""

    first: Request
    requests: dict[int, Request] = field(default_factory=dict)
