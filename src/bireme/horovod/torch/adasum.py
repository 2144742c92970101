"""The optimizer that adds up the processes' steps by Adasum. Made by `optimizer`."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.exceptions import MisusedOptimizer
from bireme.horovod.torch.allreduce import allreduce_async_
from bireme.horovod.torch.handles import synchronize
from bireme.horovod.torch.named import name_parameters, unnamed

if TYPE_CHECKING:
    from bireme.horovod.torch.averaging import Reduction

__all__ = ("AdasumOptimizer",)


class AdasumOptimizer(torch.optim.Optimizer):
    """Steps alone, then moves by the adaptive sum of all processes' steps.

    Gradients stay with their process; what travels is how each parameter has changed.

    Source:
        Maleki et al., "Scaling Distributed Training with Adaptive Summation", arXiv:2006.02924.
    """

    def _begin(
        self,
        inner: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, Tensor]] | None,
        passes: int,
        reduction: "Reduction",
    ) -> None:
        self._inner = inner
        self._parameter_names = name_parameters(self.param_groups, named_parameters)
        self._compression = reduction.compression
        self.process_set = reduction.process_set
        self.backward_passes_per_step = passes
        self.op = reduction.op

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Take note of it: gradients add up until ``step()`` anyway."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Do nothing: steps are added up in ``step()``, not gradients before it."""

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Raise: without it there would be no sum.

        Raises:
            MisusedOptimizer: An AssertionError, always.
        """
        raise MisusedOptimizer(
            "Skipping synchronization is not supported when using Adasum optimizer."
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step, then replace the change of each parameter by the sum of all processes'.

        Raises:
            HorovodInternalError: The sum failed; parameters are where this process stepped to.
        """
        self._inner._opt_called = True  # type: ignore[attr-defined]
        params = self._moving()
        if not self.process_set.included():
            return super().step(closure)
        starts = [param.detach().clone() for param in params]
        loss = super().step(closure)
        with torch.no_grad():
            sent = [
                self._compression.compress(param.detach() - start)
                for param, start in zip(params, starts, strict=True)
            ]
            numbers = [
                allreduce_async_(
                    change,
                    name=self._parameter_names[param],
                    op=HorovodBasics.Adasum,
                    process_set=self.process_set,
                )
                for param, (change, _) in zip(params, sent, strict=True)
            ]
            for param, start, (_, ctx), number in zip(params, starts, sent, numbers, strict=True):
                param.copy_(start + self._compression.decompress(synchronize(number), ctx))
        return loss

    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        super().zero_grad(set_to_none)

    def _moving(self) -> list[Tensor]:
        """Return the parameters that are trained, the same on all processes."""
        moving = []
        for row, group in enumerate(self.param_groups):
            for column, param in enumerate(group["params"]):
                self._parameter_names.setdefault(param, unnamed(row, column))
                if param.requires_grad:
                    moving.append(param)
        return moving
