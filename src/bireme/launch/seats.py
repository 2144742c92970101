"""Which worker sits where: ranks by host and slot, and the names that scripts know them by. Pure.

Called by whoever plans a job. The names are Horovod's and torchrun's, so that scripts of both
find their places; :mod:`bireme.launch.job` adds ours and MXNet's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ("WORLD_VARIABLES", "Seat", "seats", "world_variables")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of one worker.

    Args:
        host: The name by which the user knows its machine.
        rank: Number among all workers.
        size: How many there are.
        local_rank: Number among the workers of its machine.
        local_size: How many there are on its machine.
        cross_rank: Number of its machine among those with a worker of this ``local_rank``.
        cross_size: How many such machines there are.
    """

    host: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def seats(layout: Sequence[tuple[str, int]]) -> list[Seat]:
    """Return the seats of all workers, by rank: machine after machine, slot after slot.

    Args:
        layout: Each machine's name and its number of workers, in the order of ranks.

    Example:
        >>> [(s.host, s.local_rank, s.cross_rank) for s in seats([("a", 2), ("b", 1)])]
        [('a', 0, 0), ('a', 1, 0), ('b', 0, 1)]

    Source:
        Horovod's ``cross_rank``: the index among hosts that have this local rank.
    """
    size = sum(count for _, count in layout)
    most = max((count for _, count in layout), default=0)
    num_with = [sum(count > local_rank for _, count in layout) for local_rank in range(most)]
    seen = [0] * most
    found: list[Seat] = []
    for host, count in layout:
        for local_rank in range(count):
            seat = Seat(
                host=host,
                rank=len(found),
                size=size,
                local_rank=local_rank,
                local_size=count,
                cross_rank=seen[local_rank],
                cross_size=num_with[local_rank],
            )
            seen[local_rank] += 1
            found.append(seat)
    return found


def world_variables(seat: Seat) -> dict[str, str]:
    """Return what scripts written for Horovod and for torchrun look for, but for addresses."""
    numbers = {
        "HOROVOD_RANK": seat.rank,
        "HOROVOD_SIZE": seat.size,
        "HOROVOD_LOCAL_RANK": seat.local_rank,
        "HOROVOD_LOCAL_SIZE": seat.local_size,
        "HOROVOD_CROSS_RANK": seat.cross_rank,
        "HOROVOD_CROSS_SIZE": seat.cross_size,
        "RANK": seat.rank,
        "WORLD_SIZE": seat.size,
        "LOCAL_RANK": seat.local_rank,
        "LOCAL_WORLD_SIZE": seat.local_size,
    }
    return {
        **{name: str(number) for name, number in numbers.items()},
        "HOROVOD_HOSTNAME": seat.host,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }


_NOBODY = Seat(host="", rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)
_ADDRESSES = (
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "MASTER_ADDR",
    "MASTER_PORT",
)

WORLD_VARIABLES = frozenset((*world_variables(_NOBODY), *_ADDRESSES))
"""The variables by which workers know their place and find each other."""
