"""Giving every process the same start: parameters, optimizer states, any object."""

from typing import Any

import torch
from torch import Tensor

from bireme.errors import ConfigError
from bireme.horovod.common.process_sets import ProcessSet, global_process_set
from bireme.horovod.objects import from_bytes, to_bytes
from bireme.horovod.session import CURRENT
from bireme.horovod.torch.exchange import broadcast_, broadcast_async_
from bireme.horovod.torch.gather import allgather
from bireme.horovod.torch.handles import synchronize
from bireme.horovod.torch.states import fill, install, outline
from bireme.horovod.torch.untraced import untraced

__all__ = (
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
)


@untraced
def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Give every process the root's parameters, in place.

    Args:
        params: ``model.state_dict()``, a list of tensors, or a list of (name, tensor) such as
            ``list(model.named_parameters())``.
        root_rank: Whose values hold.

    Raises:
        ConfigError: A ValueError: ``params`` is something else, or holds what is no tensor.
        HorovodInternalError: The processes' parameters do not fit.
    """
    pairs: list[tuple[str | None, Any]]
    if isinstance(params, dict):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [each if isinstance(each, tuple) else (None, each) for each in params]
    else:
        raise ConfigError(
            f"invalid params of type: {type(params)}; pass a state_dict or a list of parameters"
        )
    for name, value in pairs:
        if not isinstance(value, Tensor):
            raise ConfigError(
                f"parameter {name!r} is no tensor but {type(value).__name__}; leave it out and "
                "send it with hvd.broadcast_object"
            )
    handles = [broadcast_async_(value, root_rank, name) for name, value in pairs]
    for handle in handles:
        synchronize(handle)


@untraced
def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Give every process the root's optimizer state and options, such as the learning rate.

    Nothing is stepped: parameters stay as they are, and a fresh optimizer stays fresh, but that its
    parameters get gradients of zeros, as scripts expect. State that the root does not have is
    dropped elsewhere.

    Args:
        optimizer: Plain or distributed, over parameters of the same shapes everywhere.
        root_rank: Whose state holds.
        model: Tells which parameters have sparse gradients; those get none.

    Raises:
        ConfigError: A ValueError, on every process: the optimizers have different parameters.
    """
    is_root = CURRENT.topology.rank == root_rank
    plan, tensors = outline(optimizer) if is_root else (None, [])
    plan = broadcast_object(plan, root_rank)
    shapes = [[tuple(p.shape) for p in group["params"]] for group in optimizer.param_groups]
    differing = [
        rank for rank, other in enumerate(allgather_object(shapes)) if other != plan.shapes
    ]
    if differing:
        raise ConfigError(
            f"the optimizers of ranks {differing} have other parameters than rank {root_rank}'s; "
            "make them alike before broadcasting their state"
        )
    if not is_root:
        tensors = fill(plan, optimizer)
    handles = [broadcast_async_(tensor, root_rank) for tensor in tensors]
    for handle in handles:
        synchronize(handle)
    if not is_root:
        install(plan, tensors, optimizer)
    if not plan.state:
        _clear_gradients(optimizer, model)


@untraced
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's object.

    Args:
        obj: Anything that can be pickled; what other processes pass does not matter.
        root_rank: Rank in the job, also within a process set.
        name: Ties together the calls of all processes; None: there is one at a time.
        process_set: Who takes part.
    """
    name = name or "broadcast_object"
    is_root = CURRENT.topology.rank == root_rank
    data = _tensor_of(to_bytes(obj)) if is_root else torch.empty(0, dtype=torch.uint8)
    size = torch.tensor([data.numel()])
    broadcast_(size, root_rank, f"{name}.sz", process_set)
    if not is_root:
        data = torch.empty(int(size), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if is_root else from_bytes(data.numpy().tobytes())


@untraced
def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return every process's object, in the order of ranks.

    Args:
        obj: Anything that can be pickled.
        name: Ties together the calls of all processes; None: there is one at a time.
        process_set: Who takes part.
    """
    name = name or "allgather_object"
    data = _tensor_of(to_bytes(obj))
    sizes = allgather(torch.tensor([data.numel()]), f"{name}.sz", process_set)
    whole = allgather(data, f"{name}.t", process_set)
    return [from_bytes(part.numpy().tobytes()) for part in whole.split(sizes.tolist())]


def _clear_gradients(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    """Give zeros to trained parameters without a gradient, but for those with sparse ones."""
    layers = model.modules() if model is not None else ()
    sparse = {id(p) for each in layers if getattr(each, "sparse", False) for p in each.parameters()}
    if isinstance(optimizer, torch.optim.SparseAdam):
        return
    for param in (param for group in optimizer.param_groups for param in group["params"]):
        if param.requires_grad and param.grad is None and id(param) not in sparse:
            param.grad = torch.zeros_like(param)


def _tensor_of(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
