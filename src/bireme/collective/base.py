"""What every engine promises: named operations on tensors, submitted in any order on any rank.

`bireme.horovod` and the ``allreduce`` store call it.
"""

from collections.abc import Sequence
from os import PathLike
from typing import Protocol

from torch import Tensor

from bireme.collective.handles import Handle
from bireme.core.negotiation.messages import Key
from bireme.types.topology import ReduceOp, Topology

__all__ = ("GLOBAL_SET", "Collectives", "How")

GLOBAL_SET = 0
"""The id of the process set of all ranks."""

How = tuple[ReduceOp, tuple[float, float]]
"""How to reduce, and the factors before and after."""


class Collectives(Protocol):
    """Collective operations between the ranks of a job.

    Every operation has a name. It runs once every rank of its process set has submitted it, in one
    order on all ranks, whatever the order of submission. Tensors belong to the engine until the
    handle is done; they are dense and contiguous.

    Guarantees:
        Threads: may be called from any thread.
        Errors: a faulty argument raises `ConfigError` at submission and changes nothing. What only
        the ranks together can see raises `CollectiveError` from `Handle.wait`, on every rank of
        the set alike, and the engine stays usable, but for `RankLost` and `EngineClosed`.
        Forks: a child process may not use the engine, and does not disturb it.
    """

    @property
    def topology(self) -> Topology:
        """This process's place in the job."""

    def allreduce(
        self,
        tensors: Sequence[Tensor],
        *,
        names: Sequence[str],
        op: ReduceOp = ReduceOp.AVERAGE,
        prescale: float = 1.0,
        postscale: float = 1.0,
        outs: Sequence[Tensor] | None = None,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """Reduce tensors over the ranks.

        Args:
            tensors: Of one shape and dtype on every rank. Several form a group, which runs together
                once all ranks have submitted the whole of it.
            names: One for each tensor; not under way already on this rank.
            op: How to reduce. AVERAGE divides by the size of the process set, and truncates
                integers; MIN, MAX and PRODUCT take no complex tensors, AVERAGE no bool.
            prescale: What each rank's tensor is multiplied by first; the same on all ranks.
            postscale: What the result is multiplied by; the same on all ranks.
            outs: Where the results go, of the tensors' shapes and dtypes, possibly the tensors
                themselves; None makes new ones.
            process_set: Which ranks take part.

        Returns:
            A handle whose result is the list of reduced tensors.

        Raises:
            ConfigError: An argument is faulty, or a name is under way already.
            EngineClosed: The engine is closed.
            RankLost: A rank is gone.
        """

    def allreduce_again(
        self, key: Key, tensor: Tensor, out: Tensor | None, how: How
    ) -> Handle | None:
        """Do as `allreduce` with one tensor if all ranks know an operation just like it.

        A step has hundreds of these, which have passed every check before.

        Args:
            key: The process set, and the name.
            tensor: Without a graph.
            out: The tensor itself; None makes a new one.
            how: The operation, and the factors before and after.

        Returns:
            The handle; None: nothing has been done, call `allreduce`.

        Raises:
            ConfigError: The name is under way already.
        """

    def allgather(
        self, tensors: Sequence[Tensor], *, names: Sequence[str], process_set: int = GLOBAL_SET
    ) -> Handle:
        """Concatenate the ranks' tensors along dimension 0, which may differ between ranks.

        Returns:
            A handle whose result is the list of gathered tensors.
        """

    def reducescatter(
        self,
        tensors: Sequence[Tensor],
        *,
        names: Sequence[str],
        op: ReduceOp = ReduceOp.AVERAGE,
        prescale: float = 1.0,
        postscale: float = 1.0,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """Reduce tensors and give each rank its rows; the first ranks get one more of a remainder.

        Args:
            tensors: Of one shape and dtype on every rank.
            names: One for each tensor.
            op: SUM or AVERAGE.
            prescale: As for `allreduce`.
            postscale: As for `allreduce`.
            process_set: Which ranks take part.

        Returns:
            A handle whose result is the list of this rank's parts.
        """

    def broadcast(
        self,
        tensor: Tensor,
        root_rank: int,
        *,
        name: str,
        out: Tensor | None = None,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """Give every rank the root's tensor.

        Args:
            tensor: On the root, the value; elsewhere a tensor of its shape and dtype.
            root_rank: Rank in the job, also within a process set.
            name: The operation's name.
            out: Where the value goes, possibly ``tensor`` itself; None makes a new tensor.
            process_set: Which ranks take part.

        Returns:
            A handle whose result is the tensor with the root's value.
        """

    def alltoall(
        self,
        tensor: Tensor,
        splits: Tensor | None,
        *,
        name: str,
        process_set: int = GLOBAL_SET,
    ) -> Handle:
        """Send the i-th part of a tensor's rows to the i-th rank of the set.

        Args:
            tensor: At least as many rows as ``splits`` adds up to.
            splits: Rows for each rank, int32, one-dimensional; None deals the rows evenly.
            name: The operation's name.
            process_set: Which ranks take part.

        Returns:
            A handle whose result is what arrived, and how many rows came from each rank, int32, on
            the device of ``splits``.
        """

    def barrier(self, process_set: int = GLOBAL_SET) -> Handle:
        """Wait for every rank of the set."""

    def join(self, device: int = -1) -> Handle:
        """Say that this rank has no more data: it adds zeros until every rank has joined.

        Args:
            device: CUDA device for the zeros; -1: the CPU.

        Returns:
            A handle whose result is the rank that joined last.
        """

    def add_process_set(self, ranks: Sequence[int]) -> int:
        """Make a process set and return its id; every rank of the job calls this alike."""

    def remove_process_set(self, process_set: int) -> bool:
        """Remove a process set; every rank calls this alike. False: there is none to remove."""

    def process_sets(self) -> dict[int, tuple[int, ...]]:
        """Return the ranks of each process set, sorted, by its id; 0 holds all."""

    def start_timeline(self, path: str | PathLike[str], mark_cycles: bool = False) -> None:
        """Record what happens to operations from now on.

        Args:
            path: Rank 0 writes it; with ``{rank}`` in its name every rank writes one.
            mark_cycles: Also mark the engine's rounds of work.
        """

    def stop_timeline(self) -> None:
        """End the recording; without one, do nothing."""

    def close(self) -> None:
        """Shut down; operations under way end with `EngineClosed`. Idempotent."""
