"""Where a process stands among the ranks of a job, and the ways to reduce. Pure values."""

from dataclasses import dataclass
from enum import IntEnum

from bireme.errors import ConfigError

__all__ = ("ReduceOp", "Topology")


class ReduceOp(IntEnum):
    """How the ranks' tensors become one.

    Source:
        The numbers are those of ``horovod.common.basics``.
    """

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    """The adaptive sum of arXiv:2006.02924, tensor by tensor."""
    MIN = 3
    MAX = 4
    PRODUCT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A process's place in a job.

    Args:
        rank: Number of the process in the job, from 0.
        size: Processes in the job.
        local_rank: Number among the processes of its machine.
        local_size: Processes on its machine.
        cross_rank: Number of its machine among those that have a process of its local rank.
        cross_size: How many machines have a process of its local rank.
        is_homogeneous: Whether every machine has as many processes.
        hostname: What the launcher calls the machine; empty where it does not say.

    Raises:
        ConfigError: A rank is not below its size.

    Example:
        >>> Topology.alone().size
        1
        >>> Topology(rank=2, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=1)
        Traceback (most recent call last):
        bireme.errors.ConfigError: rank must be >= 0 and < size, got rank 2 of 2
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    is_homogeneous: bool = True
    hostname: str = ""

    def __post_init__(self) -> None:
        for prefix in ("", "local_", "cross_"):
            rank, size = getattr(self, f"{prefix}rank"), getattr(self, f"{prefix}size")
            if not 0 <= rank < size:
                raise ConfigError(
                    f"{prefix}rank must be >= 0 and < {prefix}size, got {prefix}rank {rank} "
                    f"of {size}"
                )

    @classmethod
    def alone(cls) -> "Topology":
        """Return the place of a process that is a job of its own."""
        return cls.on_one_machine(0, 1)

    @classmethod
    def on_one_machine(cls, rank: int, size: int) -> "Topology":
        """Return the place of ``rank`` of ``size`` processes that share a machine."""
        return cls(
            rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1
        )
