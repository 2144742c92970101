"""``DistributedOptimizer``: a script's optimizer that averages gradients before it steps."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bireme.errors import ConfigError
from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.process_sets import ProcessSet, global_process_set
from bireme.horovod.session import CURRENT
from bireme.horovod.torch.adasum import AdasumOptimizer
from bireme.horovod.torch.averaging import AveragingOptimizer, Reduction
from bireme.horovod.torch.compression import Compression, Compressor
from bireme.horovod.torch.named import check_groups

__all__ = ("DistributedOptimizer",)

_AVERAGE, _ADASUM = HorovodBasics.Average, HorovodBasics.Adasum


def DistributedOptimizer(  # noqa: PLR0913
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = _AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer that reduces gradients over processes, and is otherwise the given one.

    It is of a new class below the given one's, and shares its state, options and defaults.
    Gradients leave as ``loss.backward()`` makes them; ``step()`` waits for them.

    Args:
        optimizer: Any optimizer of torch's kind.
        named_parameters: Usually ``model.named_parameters()``; names tie gradients together.
        compression: What to send gradients as.
        backward_passes_per_step: Passes whose gradients add up before they are reduced.
        op: Average, Sum or Adasum (of the step's changes instead of gradients).
        gradient_predivide_factor: With Average: gradients are divided by it before the sum and
            multiplied by it after, for the sake of 16-bit ranges.
        num_groups: Older name of ``groups`` as a number.
        groups: Which gradients travel together: in how many groups, or lists of parameters.
        sparse_as_dense: Whether sparse gradients travel as dense ones.
        process_set: Over whom to reduce.

    Raises:
        ConfigError: A ValueError: an argument is faulty.

    Example:
        >>> import bireme.horovod.torch as hvd
        >>> hvd.init()
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
        ...     named_parameters=model.named_parameters())
        >>> isinstance(optimizer, torch.optim.SGD)
        True
        >>> hvd.shutdown()
    """
    if gradient_predivide_factor != 1.0 and op != _AVERAGE:
        raise ConfigError("gradient_predivide_factor not supported with op != Average")
    if gradient_predivide_factor <= 0:
        raise ConfigError(f"gradient_predivide_factor must be > 0, got {gradient_predivide_factor}")
    if backward_passes_per_step <= 0:
        raise ConfigError(f"backward_passes_per_step must be > 0, got {backward_passes_per_step}")
    if num_groups:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=2
        )
        groups = num_groups if groups is None else groups
    if isinstance(optimizer, AveragingOptimizer | AdasumOptimizer):
        raise ConfigError("the optimizer is distributed already; pass the one inside of it")
    check_groups(groups)
    reduction = Reduction(
        op, compression, gradient_predivide_factor, groups, sparse_as_dense, process_set
    )
    uses_adasum = op == _ADASUM and CURRENT.topology.size > 1
    kind = AdasumOptimizer if uses_adasum else AveragingOptimizer
    return _wrapped(
        optimizer,
        kind,
        lambda made: made._begin(optimizer, named_parameters, backward_passes_per_step, reduction),
    )


def _wrapped(
    optimizer: torch.optim.Optimizer, kind: type, begin: Callable[[Any], None]
) -> torch.optim.Optimizer:
    """Return an optimizer of a class below both, around the same state.

    The constructor is not called: it may want other arguments than groups of parameters.
    """
    inner = optimizer.__class__
    cls: Any = type(
        inner.__name__, (kind, inner), {"__module__": __name__, "__doc__": inner.__doc__}
    )
    made: torch.optim.Optimizer = cls.__new__(cls)
    # A scheduler puts a step of its own on the instance; it is the inner one's and stays there.
    made.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    begin(made)
    return made
