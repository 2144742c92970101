"""The process group that PyTorch sees: ``torch.distributed``'s calls, checked and put in order.

PyTorch calls these methods from Python (``dist.all_reduce``) and from C++
(``DistributedDataParallel``); both names of a method that PyTorch has renamed are here. Tensors
that are not contiguous are copied and copied back.
"""

import os
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup, ReduceOp

from bireme.collective.bank.elements import Reduction
from bireme.collective.exchange import Exchange
from bireme.collective.flat import Flat, check_many, check_root, check_whole, split_rows, write_back
from bireme.collective.network import Network
from bireme.collective.reductions import reduction_of
from bireme.collective.sparse import check_sparse, sum_sparse
from bireme.collective.works import Joint, Lane, LaneWork
from bireme.errors import ConfigError, StateError

_Base: Any = ProcessGroup

__all__ = ("BiremeProcessGroup",)


class BiremeProcessGroup(_Base):  # type: ignore[misc]
    """See ``torch.distributed.ProcessGroup``.

    Args:
        exchange: What carries the operations out.
        rank: This rank in the group.
        size: How many ranks it has.
        timeout: Limit of each operation that states none.
        flat: Makes a network between all ranks, which carries messages between two ranks.
    """

    def __init__(
        self,
        exchange: Exchange,
        rank: int,
        size: int,
        timeout: timedelta,
        flat: Callable[[], Network],
    ) -> None:
        super().__init__(rank, size)
        self._exchange = exchange
        self._timeout_s = timeout.total_seconds()
        self._flat, self._messages = flat, list[Network]()
        many = exchange.many
        self._joint_bytes = -1 if many is None else many.joint_bytes
        self._lane = Lane(
            lambda error: exchange.give_up(_reason(error)),
            None if many is None else many.all_reduce_joint,
        )
        self._name = self._description = ""
        self._ending = weakref.finalize(
            self, _end, os.getpid(), self._lane, exchange, self._messages
        )

    @property
    def exchange(self) -> Exchange:
        """What carries the operations out."""
        return self._exchange

    def getBackendName(self) -> str:
        """Return the backend's name."""
        return "bireme"

    # PyTorch's own groups keep both with the backend that they wrap; we are no wrapper.
    def setGroupName(self, name: str) -> None:
        """Take the group's name; called by PyTorch."""
        self._name = name

    def getGroupName(self) -> str:
        """Return the group's name."""
        return self._name

    def setGroupDesc(self, description: str) -> None:
        """Take the group's description; called by PyTorch."""
        self._description = description

    def getGroupDesc(self) -> str:
        """Return the group's description."""
        return self._description

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduce tensors in place; of sparse COO tensors the sum, coalesced."""
        op = reduction_of(getattr(opts, "reduceOp", opts if opts is not None else ReduceOp.SUM))
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        limit_s = self._limit_s(opts, timeout)
        if any(each.is_sparse for each in tensors):
            return self._allreduce_sparse(tensors, op, limit_s, opts)
        flat = [Flat(tensor) for tensor in tensors]

        def run() -> None:
            for each in flat:
                self._exchange.all_reduce(each.tensor, op, limit_s)
                each.write_back()

        joint: Joint | None = None
        if len(flat) == 1 and flat[0].is_plain:
            given = flat[0].tensor
            if given.nbytes <= self._joint_bytes:
                joint = ((given.dtype, op), (given, op, limit_s))
        return self._submit(run, tensors, opts, joint)

    def _allreduce_sparse(
        self, tensors: Sequence[Tensor], op: Reduction, limit_s: float, opts: Any
    ) -> Any:
        for each in tensors:
            check_sparse(each, op)

        def run() -> None:
            for each in tensors:
                sum_sparse(self._exchange, each, self.rank(), self.size(), limit_s)

        return self._submit(run, tensors, opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> Any:
        """Reduce tensors in place."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any, timeout: timedelta | None = None) -> Any:
        """Copy the root's tensors to all."""
        root = int(getattr(opts, "rootRank", opts))
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        check_root(root, self.size())
        limit_s = self._limit_s(opts, timeout)
        flat = [Flat(tensor) for tensor in tensors]

        def run() -> None:
            for each in flat:
                self._exchange.broadcast(each.tensor, root, limit_s)
                each.write_back()

        return self._submit(run, tensors, opts)

    def reduce(
        self, tensors: Any, opts: Any, op: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Reduce tensors in place on the root."""
        root = int(getattr(opts, "rootRank", opts))
        reduction = reduction_of(getattr(opts, "reduceOp", op if op is not None else ReduceOp.SUM))
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        check_root(root, self.size())
        limit_s = self._limit_s(opts, timeout)
        flat = [Flat(tensor) for tensor in tensors]

        def run() -> None:
            for each in flat:
                self._exchange.reduce(each.tensor, root, reduction, limit_s)
                each.write_back()

        return self._submit(run, tensors, opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy every rank's tensors to all."""
        if isinstance(inputs, Tensor):
            outputs, inputs = [outputs], [inputs]
        pairs = [(Flat(i), [Flat(o) for o in os]) for i, os in zip(inputs, outputs, strict=True)]
        for source, targets in pairs:
            check_many("all_gather", targets, self.size(), source.tensor.dtype)
        limit_s = self._limit_s(opts)

        def run() -> None:
            for source, targets in pairs:
                self._exchange.all_gather(source.tensor, [t.tensor for t in targets], limit_s)
                write_back(targets)

        return self._submit(run, outputs, opts)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy every rank's tensors to all; ``outputs`` is one list of tensors for each rank."""
        return self.allgather([list(each) for each in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Any:
        """Copy every rank's tensor into one, in the ranks' order."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Do as `all_gather_single` for several tensors."""
        pairs = [(Flat(i), Flat(o)) for i, o in zip(inputs, outputs, strict=True)]
        for source, target in pairs:
            check_whole("all_gather", target.tensor, source.tensor, self.size())
        limit_s = self._limit_s(opts)

        def run() -> None:
            for source, target in pairs:
                parts = list(
                    target.tensor.view(-1).chunk(self.size())
                    if target.tensor.numel()
                    else [target.tensor] * self.size()
                )
                self._exchange.all_gather(source.tensor, parts, limit_s)
                target.write_back()

        return self._submit(run, outputs, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy every rank's tensor to the root."""
        source, root = Flat(inputs[0]), int(opts.rootRank)
        check_root(root, self.size())
        targets = [Flat(o) for o in outputs[0]] if self.rank() == root else None
        if targets is not None:
            check_many("gather", targets, self.size(), source.tensor.dtype, source.tensor.numel())
        limit_s = self._limit_s(opts)

        def run() -> None:
            into = None if targets is None else [target.tensor for target in targets]
            self._exchange.gather(source.tensor, into, root, limit_s)
            write_back(targets or ())

        return self._submit(run, outputs, opts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy one of the root's tensors to each rank."""
        target, root = Flat(outputs[0]), int(opts.rootRank)
        check_root(root, self.size())
        sources = [Flat(i) for i in inputs[0]] if self.rank() == root else None
        if sources is not None:
            check_many("scatter", sources, self.size(), target.tensor.dtype, target.tensor.numel())
        limit_s = self._limit_s(opts)

        def run() -> None:
            given = None if sources is None else [source.tensor for source in sources]
            self._exchange.scatter(given, target.tensor, root, limit_s)
            target.write_back()

        return self._submit(run, outputs, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce one tensor for each rank, and give each its own."""
        op = reduction_of(getattr(opts, "reduceOp", ReduceOp.SUM))
        pairs = [([Flat(i) for i in is_], Flat(o)) for is_, o in zip(inputs, outputs, strict=True)]
        for sources, target in pairs:
            check_many("reduce_scatter", sources, self.size(), target.tensor.dtype)
            own = sources[self.rank()].tensor
            if own.numel() != target.tensor.numel():
                raise ConfigError(
                    f"reduce_scatter: this rank's input has {own.numel()} elements, its output "
                    f"{target.tensor.numel()}"
                )
        limit_s = self._limit_s(opts)

        def run() -> None:
            for sources, target in pairs:
                given = [source.tensor for source in sources]
                self._exchange.reduce_scatter(given, target.tensor, op, limit_s)
                target.write_back()

        return self._submit(run, outputs, opts)

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Any:
        """Reduce one tensor whose equal parts are for the ranks in their order."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Do as `reduce_scatter_single` for several tensors."""
        parts = []
        for target, source in zip(outputs, inputs, strict=True):
            check_whole("reduce_scatter", source, target, self.size())
            flat = Flat(source).tensor.view(-1)
            parts.append(list(flat.chunk(self.size())) if flat.numel() else [flat] * self.size())
        return self.reduce_scatter(outputs, parts, opts)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Copy one tensor from each rank to each."""
        targets, sources = [Flat(o) for o in outputs], [Flat(i) for i in inputs]
        check_many("all_to_all", targets, self.size(), sources[0].tensor.dtype)
        check_many("all_to_all", sources, self.size(), sources[0].tensor.dtype)
        limit_s = self._limit_s(opts)

        def run() -> None:
            given, into = [s.tensor for s in sources], [t.tensor for t in targets]
            self._exchange.all_to_all(given, into, limit_s, are_equal=False)
            write_back(targets)

        return self._submit(run, outputs, opts)

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: Any,
        input_splits: Any,
        opts: Any = None,
    ) -> Any:
        """Copy a run of rows from each rank to each."""
        target, given = Flat(output), Flat(source)
        if target.tensor.dtype != given.tensor.dtype:
            raise ConfigError(
                f"all_to_all: the output has {target.tensor.dtype}, the input {given.tensor.dtype}"
            )
        into = split_rows(target.tensor, output_splits, self.size(), "output")
        parts = split_rows(given.tensor, input_splits, self.size(), "input")
        are_equal = not output_splits and not input_splits
        if are_equal and target.tensor.numel() != given.tensor.numel():
            raise ConfigError("all_to_all: without splits input and output have one size")
        limit_s = self._limit_s(opts)

        def run() -> None:
            self._exchange.all_to_all(parts, into, limit_s, are_equal=are_equal)
            target.write_back()

        return self._submit(run, [output], opts)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        timeout = opts if isinstance(opts, timedelta) else None
        limit_s = self._limit_s(opts, timeout)
        return self._submit(lambda: self._exchange.barrier(limit_s), [], opts)

    def send(self, tensors: Sequence[Tensor], target: int, tag: int = 0) -> Any:
        """Send a tensor to one rank; not in order with collectives."""
        check_root(target, self.size())
        return self._messenger().send([Flat(tensor).tensor for tensor in tensors], target, tag)

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Any:
        """Receive a tensor from one rank."""
        check_root(source, self.size())
        return self._messenger().recv(_in_place(tensors), source, tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Any:
        """Receive a tensor from whoever sends one."""
        return self._messenger().recv_anysource(_in_place(tensors), tag)

    def _messenger(self) -> Any:
        if not self._ending.alive:
            raise StateError("this process group was destroyed")
        if not self._messages:
            self._messages.append(self._flat())
        return self._messages[0].group

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def set_timeout(self, timeout: timedelta) -> None:
        """Change the limit of operations that state none."""
        self._timeout_s = timeout.total_seconds()

    def shutdown(self) -> None:
        """Leave the group; operations under way fail."""
        self._ending()

    abort = shutdown

    def _limit_s(self, opts: Any, timeout: timedelta | None = None) -> float:
        found = timeout if timeout is not None else getattr(opts, "timeout", None)
        seconds = found.total_seconds() if isinstance(found, timedelta) else 0.0
        return seconds if seconds > 0 else self._timeout_s

    def _submit(
        self, run: Callable[[], None], result: Any, opts: Any, joint: Joint | None = None
    ) -> LaneWork:
        is_async = bool(getattr(opts, "asyncOp", True))
        return self._lane.submit(run, result, is_async=is_async, joint=joint)


def _in_place(tensors: Sequence[Tensor]) -> list[Tensor]:
    flat = [Flat(tensor).tensor for tensor in tensors]
    if any(found is not tensor for found, tensor in zip(flat, tensors, strict=True)):
        raise ConfigError("a tensor to receive into must be contiguous")
    return flat


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _end(process: int, lane: Lane, exchange: Exchange, messages: Sequence[Network]) -> None:
    # A forked child has copies of all this, and must not end what is its parent's.
    if process != os.getpid():
        return
    lane.close(lambda: exchange.give_up("the group was destroyed"))
    exchange.close()
    for each in messages:
        each.close()
