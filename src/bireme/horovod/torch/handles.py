"""Submitting an operation, and finding it again by the number that the user holds.

Called by the modules of operations; users call `poll`, `synchronize`, `join` and `barrier`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bireme.collective import Collectives, Handle, ReduceOp
from bireme.errors import BiremeError, CollectiveError, ConfigError
from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.exceptions import HorovodInternalError, NotInitialized
from bireme.horovod.common.process_sets import ProcessSet, global_process_set, id_of
from bireme.horovod.common.util import get_average_backwards_compatibility_fun
from bireme.horovod.session import CURRENT
from bireme.horovod.torch.untraced import untraced
from bireme.update.layout import lies_plain

__all__ = (
    "as_op",
    "barrier",
    "choose_op",
    "dense",
    "group_names",
    "is_plain",
    "join",
    "poll",
    "put_back",
    "refusal",
    "submit",
    "synchronize",
)

_OPS = {int(op): op for op in ReduceOp}

choose_op = get_average_backwards_compatibility_fun(HorovodBasics)
"""Makes one operation of ``op`` and ``average``."""


@untraced
def submit(
    kind: str,
    name: str | None,
    process_set: ProcessSet,
    start: Callable[[Collectives, str, int], Handle],
    finish: Callable[[Any], Any],
    inputs: object = None,
) -> int:
    """Submit an operation and return its number.

    Args:
        kind: What comes before the name, such as ``allreduce``.
        name: The user's name; None: the next one that is free.
        process_set: Who takes part.
        start: Submits to the engine, given the whole name and the number of the set.
        finish: Makes what `synchronize` returns of the engine's result.
        inputs: Kept alive until then.

    Raises:
        ConfigError: A ValueError: an argument is faulty, or the name is under way already.
        HorovodInternalError: There is no job, or it has lost a process.
    """
    try:
        engine = CURRENT.engine
        set_id = id_of(process_set)
        whole = CURRENT.name_of(kind, name, set_id)
        try:
            handle = start(engine, whole, set_id)
        except ConfigError:
            CURRENT.uncount(kind, name, set_id)
            raise
    except (NotInitialized, CollectiveError) as error:
        raise refusal(error) from error
    return CURRENT.number_of((set_id, whole), (handle, finish, inputs))


def refusal(error: BaseException) -> HorovodInternalError:
    """Return what Horovod's users expect in the place of an error of the engine, and note it."""
    CURRENT.note(error)
    return HorovodInternalError(str(error))


def group_names(name: str, count: int) -> list[str]:
    """Return the names of a group's members.

    Example:
        >>> group_names("grouped_allreduce.g", 2)
        ['grouped_allreduce.g_0of2', 'grouped_allreduce.g_1of2']
    """
    return [f"{name}_{index}of{count}" for index in range(count)]


def dense(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors for the engine: without a graph, and laid out in order."""
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ConfigError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    return [tensor if is_plain(tensor) else _in_order(tensor.detach()) for tensor in tensors]


def put_back(tensors: Sequence[Tensor], results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the user's own tensors with the results in them.

    The engine works on the same memory, but for tensors that were not laid out in order.
    """
    for tensor, result in zip(tensors, results, strict=True):
        if tensor is not result and tensor.data_ptr() != result.data_ptr():
            with torch.no_grad():
                tensor.copy_(result)
    return tuple(tensors)


def as_op(op: int) -> ReduceOp:
    """Return the engine's operation.

    Raises:
        ConfigError: There is none of this number.
    """
    try:
        return _OPS[op]
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"op is one of hvd.Average, Sum, Adasum, Min, Max and Product, got {op!r}"
        ) from error


@untraced
def poll(handle: int) -> bool:
    """Return whether `synchronize` would return at once.

    Args:
        handle: What an ``_async`` function returned, not yet synchronised.

    Raises:
        ConfigError: A ValueError: there is no such operation.
    """
    if handle not in CURRENT.pending:
        raise ConfigError(f"there is no operation {handle!r}, or it has been synchronised already")
    is_done = CURRENT.pending[handle][0].done()
    if is_done:
        CURRENT.forget_latest()
    return is_done


def synchronize(handle: int) -> Any:
    """Wait for an operation and return its result.

    Args:
        handle: What an ``_async`` function returned. One that is not known, or has been
            synchronised, gives None.

    Raises:
        HorovodInternalError: The operation failed, on every process that takes part.

    Guarantees:
        After Ctrl-C, or a signal handler that raises, it may be waited for again.
    """
    # As `untraced` would do it; a step has hundreds of these, and most are done already.
    return _untraced_result(handle) if torch.compiler.is_dynamo_compiling() else _result(handle)


def _result(handle: int) -> Any:
    pending = CURRENT.pending.get(handle)
    if pending is None:
        return None
    operation, finish, _ = pending
    try:
        result = finish(operation.wait())
    except BiremeError as error:
        CURRENT.pending.pop(handle, None)
        raise refusal(error) from error
    CURRENT.pending.pop(handle, None)
    return result


_untraced_result = untraced(_result)


@untraced
def join(device: int = -1) -> int:
    """Say that this process has no more data, and wait until every process has said so.

    Until then it takes part in the others' allreduces with zeros; other operations fail.

    Args:
        device: GPU of those zeros; -1: the CPU.

    Returns:
        The rank that joined last, the same everywhere.
    """
    number = submit(
        "join", None, global_process_set, lambda engine, _, __: engine.join(device), int
    )
    last = int(synchronize(number))
    # Those that had more data have made more calls than the others; from here all count alike.
    CURRENT.count_anew()
    return last


@untraced
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every process of the set is here."""
    number = submit(
        "barrier", None, process_set, lambda engine, _, which: engine.barrier(which), bool
    )
    synchronize(number)


def is_plain(tensor: Tensor) -> bool:
    """Return whether the engine may have the tensor as it is; cheaper than another one of it."""
    return type(tensor) is Tensor and not tensor.requires_grad and lies_plain(tensor)


def _in_order(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_sparse else tensor.contiguous().resolve_neg().resolve_conj()
