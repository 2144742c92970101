"""What ranks and their coordinator tell each other. Plain values that msgspec encodes.

A tensor's name is long and a step repeats, so an operation that has been negotiated once has a
slot: ranks then report a bit, and the coordinator answers with a mask of slots.
"""

from enum import IntEnum

import msgspec

__all__ = (
    "CONTROL_KINDS",
    "Ended",
    "Failed",
    "Fault",
    "Forget",
    "Item",
    "Key",
    "Kind",
    "Learned",
    "Opened",
    "Report",
    "Request",
    "Run",
    "Settled",
    "Verdict",
    "bits",
    "mask_of",
    "packed",
)

Key = tuple[int, str]
"""A process set and the name of an operation in it."""


class Kind(IntEnum):
    """What an operation does."""

    ALLREDUCE = 0
    ALLGATHER = 1
    BROADCAST = 2
    REDUCESCATTER = 3
    ALLTOALL = 4
    BARRIER = 5
    JOIN = 6
    ADD_SET = 7
    REMOVE_SET = 8


CONTROL_KINDS = frozenset({Kind.BARRIER, Kind.JOIN, Kind.ADD_SET, Kind.REMOVE_SET})
"""Operations without data: they are over when every rank has submitted them."""


class Fault(IntEnum):
    """Why an operation, or all of them, failed."""

    MISMATCH = 0
    """The ranks do not agree."""
    CLOSED = 1
    """A rank has shut down."""
    LOST = 2
    """A rank is gone."""
    BROKEN = 3
    """Something else; the message says what."""


class Request(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one rank says of an operation that it submits."""

    name: str
    kind: Kind
    dtype: str = ""
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    op: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = -1
    process_set: int = 0
    group: str = ""
    """Name of the group's first member; empty for an operation on its own."""
    group_size: int = 0
    numbers: tuple[int, ...] = ()
    """Splits of an all-to-all; the ranks of a new process set."""

    @property
    def key(self) -> Key:
        """What tells the operation from others under way."""
        return (self.process_set, self.name)


class Report(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a rank has submitted since its last report."""

    seen: int
    """The last verdict that this rank had taken: it tells what its slots mean."""
    hits: bytes = b""
    """Slots submitted, as a little-endian mask."""
    requests: list[Request] = msgspec.field(default_factory=list)
    is_leaving: bool = False
    failure: str = ""
    """Why this rank cannot go on; empty while it can."""
    fault: Fault = Fault.BROKEN
    """What kind of failure that is."""


class Learned(msgspec.Struct, array_like=True, tag=0, forbid_unknown_fields=True):
    """From now on ``slot`` stands for this operation."""

    slot: int
    request: Request
    sizes: tuple[int, ...] = ()
    """Rows by rank of the set for an all-gather; by sender and receiver for an all-to-all."""


class Forget(msgspec.Struct, array_like=True, tag=1, forbid_unknown_fields=True):
    """``slot`` stands for nothing any more."""

    slot: int


class Run(msgspec.Struct, array_like=True, tag=2, forbid_unknown_fields=True):
    """Run these operations, in the order of their slots."""

    mask: bytes


class Failed(msgspec.Struct, array_like=True, tag=3, forbid_unknown_fields=True):
    """These operations will not run."""

    process_set: int
    names: list[str]
    fault: Fault
    message: str


class Settled(msgspec.Struct, array_like=True, tag=4, forbid_unknown_fields=True):
    """An operation without data is over."""

    request: Request
    value: int


class Ended(msgspec.Struct, array_like=True, tag=5, forbid_unknown_fields=True):
    """Nothing runs any more."""

    fault: Fault
    message: str


class Opened(msgspec.Struct, array_like=True, tag=6, forbid_unknown_fields=True):
    """From this verdict on slots may be posted on the board instead of being reported."""


Item = Learned | Forget | Run | Failed | Settled | Ended | Opened


class Verdict(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What one rank is to do, in order."""

    number: int
    items: list[Item]


def packed(mask: int) -> bytes:
    r"""Return a mask as it travels.

    Example:
        >>> packed(0b1_0000_0001), packed(0)
        (b'\x01\x01', b'')
    """
    return mask.to_bytes((mask.bit_length() + 7) >> 3, "little")


def mask_of(data: bytes) -> int:
    """Return the mask that `packed` packed."""
    return int.from_bytes(data, "little")


def bits(mask: int) -> list[int]:
    """Return the slots of a mask, ascending.

    Example:
        >>> bits(0b1010001)
        [0, 4, 6]
    """
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
