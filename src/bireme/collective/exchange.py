"""What a process group asks of the machinery below: blocking collectives on contiguous tensors.

Implementations: `OneMachine` here, over the bank; `Hierarchy` in `hierarchy.py`, between machines.
Called by `BiremeProcessGroup`, one call at a time.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from bireme.collective.bank import moving, reducing
from bireme.collective.bank.bank import Bank
from bireme.collective.bank.elements import Reduction

__all__ = ("Exchange", "Many", "OneMachine")


class Many(Protocol):
    """What an exchange does with many tensors at once, if it can."""

    @property
    def joint_bytes(self) -> int:
        """How large a tensor may be at most that `all_reduce_joint` takes."""

    def all_reduce_joint(self, items: Sequence[tuple[Tensor, Reduction, float]]) -> int:
        """Reduce the first of some tensors, and as many of the next as all ranks have at hand.

        Args:
            items: Each tensor, the operation, and how long it may take; tensors of one type, and
                the same operation.

        Returns:
            How many were reduced, on every rank.
        """

    def all_reduce_many(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        op: Reduction,
        timeout_s: float,
        factors: tuple[float, float],
    ) -> None:
        """Reduce many tensors as if they were one; other ranks may reduce that one.

        Args:
            sources: Contiguous, of one type.
            targets: Where the results go; may be the sources.
            op: What to compute.
            timeout_s: How long it may take.
            factors: What this rank multiplies by before and after.
        """


class Exchange(Protocol):
    """Collectives between the ranks of a group.

    Tensors are contiguous and on the CPU. Roots are ranks of the group. All calls block, for
    ``timeout_s`` at most.

    Raises:
        UnsupportedError: This cannot be computed with such elements; nothing has happened.
        MismatchError: The ranks do not agree; nothing has happened.
        RankLost, WaitTimeout, CollectiveError: The group is of no use any more.
    """

    @property
    def many(self) -> Many | None:
        """How it takes many tensors at once; None: one at a time only."""

    def all_reduce(self, tensor: Tensor, op: Reduction, timeout_s: float) -> None:
        """Reduce in place."""

    def reduce(self, tensor: Tensor, root: int, op: Reduction, timeout_s: float) -> None:
        """Reduce in place on the root."""

    def reduce_scatter(
        self, inputs: Sequence[Tensor], output: Tensor, op: Reduction, timeout_s: float
    ) -> None:
        """Reduce one tensor for each rank."""

    def broadcast(self, tensor: Tensor, root: int, timeout_s: float) -> None:
        """Copy the root's tensor."""

    def all_gather(self, source: Tensor, outputs: Sequence[Tensor], timeout_s: float) -> None:
        """Copy every rank's tensor to all."""

    def gather(
        self, source: Tensor, outputs: Sequence[Tensor] | None, root: int, timeout_s: float
    ) -> None:
        """Copy every rank's tensor to the root."""

    def scatter(
        self, inputs: Sequence[Tensor] | None, output: Tensor, root: int, timeout_s: float
    ) -> None:
        """Copy one of the root's tensors to each rank."""

    def all_to_all(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        timeout_s: float,
        *,
        are_equal: bool,
    ) -> None:
        """Copy one tensor from each rank to each."""

    def barrier(self, timeout_s: float) -> None:
        """Wait for all."""

    def give_up(self, reason: str) -> None:
        """Tell the others that this rank takes no further part, and end what is under way."""

    def close(self) -> None:
        """Leave; other ranks see it when they call again."""


class OneMachine:
    """See `Exchange`: all ranks are in one bank."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    @property
    def many(self) -> Many:
        """See `Exchange`."""
        return self

    def all_reduce(self, tensor: Tensor, op: Reduction, timeout_s: float) -> None:
        """See `Exchange`."""
        reducing.all_reduce(self._bank, tensor, op, timeout_s)

    def all_reduce_many(
        self,
        sources: Sequence[Tensor],
        targets: Sequence[Tensor],
        op: Reduction,
        timeout_s: float,
        factors: tuple[float, float],
    ) -> None:
        """See `Many`."""
        reducing.all_reduce_many(self._bank, sources, targets, op, timeout_s, factors)

    @property
    def joint_bytes(self) -> int:
        """See `Many`."""
        return self._bank.flat_bytes

    def all_reduce_joint(self, items: Sequence[tuple[Tensor, Reduction, float]]) -> int:
        """See `Many`."""
        _, op, timeout_s = items[0]
        return reducing.all_reduce_joint(self._bank, [each[0] for each in items], op, timeout_s)

    def reduce(self, tensor: Tensor, root: int, op: Reduction, timeout_s: float) -> None:
        """See `Exchange`."""
        reducing.reduce(self._bank, tensor, root, op, timeout_s)

    def reduce_scatter(
        self, inputs: Sequence[Tensor], output: Tensor, op: Reduction, timeout_s: float
    ) -> None:
        """See `Exchange`."""
        reducing.reduce_scatter(self._bank, inputs, output, op, timeout_s)

    def broadcast(self, tensor: Tensor, root: int, timeout_s: float) -> None:
        """See `Exchange`."""
        moving.broadcast(self._bank, tensor, root, timeout_s)

    def all_gather(self, source: Tensor, outputs: Sequence[Tensor], timeout_s: float) -> None:
        """See `Exchange`."""
        moving.all_gather(self._bank, source, outputs, timeout_s)

    def gather(
        self, source: Tensor, outputs: Sequence[Tensor] | None, root: int, timeout_s: float
    ) -> None:
        """See `Exchange`."""
        moving.gather(self._bank, source, outputs, root, timeout_s)

    def scatter(
        self, inputs: Sequence[Tensor] | None, output: Tensor, root: int, timeout_s: float
    ) -> None:
        """See `Exchange`."""
        moving.scatter(self._bank, inputs, output, root, timeout_s)

    def all_to_all(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        timeout_s: float,
        *,
        are_equal: bool,
    ) -> None:
        """See `Exchange`."""
        moving.all_to_all(self._bank, inputs, outputs, timeout_s, are_equal=are_equal)

    def barrier(self, timeout_s: float) -> None:
        """See `Exchange`."""
        moving.barrier(self._bank, timeout_s)

    def give_up(self, reason: str) -> None:
        """See `Exchange`."""
        self._bank.steps.cancel(reason)

    def close(self) -> None:
        """See `Exchange`."""
        self._bank.close()
