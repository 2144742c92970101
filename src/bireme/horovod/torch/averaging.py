"""The optimizer that reduces gradients while the backward pass goes on. Made by `optimizer`."""

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bireme.errors import ConfigError
from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.exceptions import HorovodInternalError, MisusedOptimizer
from bireme.horovod.common.process_sets import ProcessSet
from bireme.horovod.session import CURRENT
from bireme.horovod.torch.allreduce import (
    allreduce_,
    allreduce_async_,
    grouped_allreduce_async_,
    sparse_allreduce_async,
)
from bireme.horovod.torch.compression import Compressor
from bireme.horovod.torch.functions import broadcast_object
from bireme.horovod.torch.handles import synchronize
from bireme.horovod.torch.named import bunches, name_parameters, unnamed
from bireme.horovod.torch.untraced import untraced

__all__ = ("AveragingOptimizer", "Reduction")

_TOO_MANY = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
_TOO_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(). This is prohibited as it can cause a race condition."
)
_NOT_SKIPPED = (
    "optimizer.step() called without optimizer.skip_synchronize() context after "
    "optimizer.synchronize(). This can cause training slowdown. You may want to consider using "
    "optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code."
)


@dataclass(frozen=True, slots=True)
class Reduction:
    """How gradients are reduced."""

    op: int
    compression: type[Compressor]
    predivide_factor: float
    groups: int | list[list[Tensor]] | None
    sparse_as_dense: bool
    process_set: ProcessSet

    def scales(self) -> tuple[float, float]:
        """Return the factors before and after the sum."""
        if self.op != HorovodBasics.Average:
            return 1.0, 1.0
        return 1.0 / self.predivide_factor, self.predivide_factor


class AveragingOptimizer(torch.optim.Optimizer):
    """What is put in front of the user's optimizer class."""

    def _begin(
        self,
        inner: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, Tensor]] | None,
        passes: int,
        reduction: Reduction,
    ) -> None:
        """Stand in the place of a constructor; everything is checked before a hook is set."""
        self._inner = inner
        self._parameter_names = name_parameters(self.param_groups, named_parameters)
        self._reduction = reduction
        self.backward_passes_per_step = passes
        self.op = reduction.op
        self.gradient_predivide_factor = reduction.predivide_factor
        self.sparse_as_dense = reduction.sparse_as_dense
        self.process_set = reduction.process_set
        self._allreduce_delay = dict.fromkeys(self._parameter_names, passes)
        self._handles: dict[Tensor, Callable[[], None] | None] = {}
        """Parameters with gradients of this step; the function waits for those under way."""
        self._requires_update: set[Tensor] = set()
        self._bunch_of: dict[Tensor, list[Tensor]] = {}
        self._sparse_params: set[Tensor] = set()
        self._hooks: dict[Tensor, Any] = {}
        self._synchronized = False
        self._should_synchronize = True
        self._is_active = bool(self.process_set.included()) and (
            CURRENT.topology.size > 1 or CURRENT.env.get("HOROVOD_ELASTIC") == "1"
        )
        if self._is_active:
            weakref.finalize(self, _remove, self._hooks)
            self._register_hooks()

    def _register_hooks(self) -> None:
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        groups = self._reduction.groups
        if groups is not None:
            order = broadcast_object(
                [self._parameter_names[p] for p in params],
                min(self.process_set.ranks or [0]),
                process_set=self.process_set,
            )
            params.sort(key=lambda p: order.index(self._parameter_names[p]))
        for bunch in bunches(params, groups):
            self._bunch_of.update(dict.fromkeys(bunch, bunch))
        for param in params:
            self._hook(param)

    def _hook(self, param: Tensor) -> None:
        """Have ``param`` tell when its gradient is there, this optimizer and no other."""
        before = CURRENT.owners.get(param)
        if before is not None and (other := before()) is not None and other is not self:
            other._release(param)
        CURRENT.owners[param] = weakref.ref(self)
        this = weakref.ref(self)

        def tell(ready: Tensor) -> None:
            optimizer = this()
            if optimizer is not None:
                optimizer._gradient_is_ready(ready)

        self._requires_update.add(param)
        self._bunch_of.setdefault(param, [param])
        self._hooks[param] = param.register_post_accumulate_grad_hook(tell)

    def _release(self, param: Tensor) -> None:
        """Leave a parameter to another optimizer."""
        self._hooks.pop(param).remove()
        bunch = self._bunch_of.pop(param)
        bunch[:] = [each for each in bunch if each is not param]
        self._requires_update.discard(param)
        self._handles.pop(param, None)

    @untraced
    def _gradient_is_ready(self, param: Tensor) -> None:
        if self._allreduce_delay[param] <= 0:
            raise MisusedOptimizer(_TOO_MANY)
        self._allreduce_delay[param] -= 1
        self._handles.setdefault(param, None)
        bunch = self._bunch_of[param]
        if all(self._allreduce_delay[each] == 0 for each in bunch):
            self._submit(bunch)

    def _submit(self, bunch: list[Tensor]) -> None:
        """Send the gradients of a bunch, of those in it that are not under way yet."""
        waiting = [param for param in bunch if self._handles.get(param) is None]
        for param in waiting:
            self._ensure_gradient(param)
        sparse = [param for param in waiting if _gradient(param).is_sparse]
        for param in sparse:
            self._handles[param] = self._submit_sparse(param)
        dense = [param for param in waiting if not _gradient(param).is_sparse]
        if dense:
            grads = [_gradient(param) for param in dense]
            done = self._submit_dense(dense, grads, is_group=len(bunch) > 1)
            self._handles.update(dict.fromkeys(dense, done))
        for param in waiting:
            self._allreduce_delay[param] = 0

    def _ensure_gradient(self, param: Tensor) -> None:
        """Give zeros to a parameter that had no part in this step: other ranks may need it."""
        if param.grad is None:
            param.grad = torch.zeros_like(param)
            if param in self._sparse_params:
                param.grad = param.grad.to_sparse(1)
        elif param.grad.is_sparse:
            self._sparse_params.add(param)

    def _submit_dense(
        self, params: list[Tensor], grads: list[Tensor], *, is_group: bool
    ) -> Callable[[], None]:
        compression = self._reduction.compression
        small = [compression.compress(grad) for grad in grads]
        sent = [tensor for tensor, _ in small]
        how = (self.op, *self._reduction.scales(), self.process_set)
        name = self._parameter_names[self._bunch_of[params[0]][0]]
        if is_group:
            number = grouped_allreduce_async_(sent, None, name, *how)
        else:
            number = allreduce_async_(sent[0], None, name, *how)

        def finish() -> None:
            synchronize(number)
            with torch.no_grad():
                for param, grad, (tensor, ctx) in zip(params, grads, small, strict=True):
                    if tensor is not grad:
                        grad.copy_(compression.decompress(tensor, ctx))
                    param.grad = grad

        return _once(finish)

    def _submit_sparse(self, param: Tensor) -> Callable[[], None]:
        grad = _gradient(param)
        if self.sparse_as_dense:
            whole = grad.to_dense()
            finish_dense = self._submit_dense([param], [whole], is_group=False)

            def finish() -> None:
                finish_dense()
                param.grad = whole.to_sparse(grad.sparse_dim())

            return _once(finish)
        if self.op not in (HorovodBasics.Average, HorovodBasics.Sum):
            raise ConfigError("sparse gradients are reduced by Average or Sum; or sparse_as_dense")
        result = sparse_allreduce_async(
            grad, self._parameter_names[param], self.op, self.process_set
        )

        def finish_sparse() -> None:
            param.grad = result()

        return _once(finish_sparse)

    @untraced
    def synchronize(self) -> None:
        """Wait until the gradients of all processes are reduced, and in ``param.grad``.

        Parameters without a gradient get zeros on the way, since other processes may have one.

        Raises:
            HorovodInternalError: The reduction failed.
        """
        if self._is_active:
            self._hook_what_was_thawed()
            try:
                for param in self._parameter_names:
                    if param in self._requires_update and self._handles.get(param) is None:
                        self._submit(self._bunch_of[param])
                self._wait_for_all()
            finally:
                self._restart()
        self._synchronized = True

    def _wait_for_all(self) -> None:
        """Wait for every gradient, also when one fails, so that nothing of this step is left."""
        errors = []
        for done in list(self._handles.values()):
            try:
                assert done is not None
                done()
            except HorovodInternalError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _hook_what_was_thawed(self) -> None:
        for row, group in enumerate(self.param_groups):
            for column, param in enumerate(group["params"]):
                if param.requires_grad and param not in self._requires_update:
                    owner = CURRENT.owners.get(param)
                    if owner is not None and owner() not in (None, self):
                        continue
                    self._parameter_names.setdefault(param, unnamed(row, column))
                    self._allreduce_delay.setdefault(param, self.backward_passes_per_step)
                    self._hook(param)

    def _restart(self) -> None:
        self._handles.clear()
        for param in self._allreduce_delay:
            self._allreduce_delay[param] = self.backward_passes_per_step

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Have ``step()`` not synchronise, since the script has done so itself.

        Example::

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set how many passes' gradients add up before they are reduced, from the next step on."""
        if passes <= 0:
            raise ConfigError(f"backward_passes_per_step must be > 0, got {passes}")
        self.backward_passes_per_step = passes
        self._restart()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Wait for the gradients, then step.

        Args:
            closure: Computes the loss and its gradients; it may run several times, and gradients
                and the loss that the optimizer sees are means over processes each time.
        """
        # A scheduler that was made for the inner optimizer asks it whether it has stepped.
        self._inner._opt_called = True  # type: ignore[attr-defined]
        if closure is not None:
            return super().step(self._averaged(closure))
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(_NOT_SKIPPED, stacklevel=2)
            self.synchronize()
        self._synchronized = False
        return super().step()

    # torch would otherwise call step hooks here, and again in the inner step.
    step.hooked = True  # type: ignore[attr-defined]

    def _averaged(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        if self._handles and self._should_synchronize:
            self.synchronize()

        def averaged() -> Any:
            loss = closure()
            if not self._is_active or not self._should_synchronize:
                return loss
            self.synchronize()
            self._synchronized = False
            return _mean(loss, self.process_set)

        return averaged

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients.

        Args:
            set_to_none: Free them, instead of filling them with zeros.

        Raises:
            MisusedOptimizer: An AssertionError: gradients are under way.
        """
        if self._handles:
            raise MisusedOptimizer(_TOO_EARLY)
        super().zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters; their gradients are reduced like the others'. All processes add alike."""
        super().add_param_group(param_group)
        row = len(self.param_groups) - 1
        for column, param in enumerate(self.param_groups[row]["params"]):
            self._parameter_names.setdefault(param, unnamed(row, column))
            self._allreduce_delay.setdefault(param, self.backward_passes_per_step)
            if self._is_active and param.requires_grad:
                self._hook(param)

    def load_state_dict(self, state_dict: Any) -> None:
        """Load a state; gradients that are under way are forgotten."""
        self._restart()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(state_dict)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_inner" in self.__dict__:
            # The inner optimizer goes on to show the same, to schedulers that know only it.
            self._inner.state, self._inner.param_groups = self.state, self.param_groups


def _gradient(param: Tensor) -> Tensor:
    assert param.grad is not None
    return param.grad


def _once(action: Callable[[], None]) -> Callable[[], None]:
    """Return ``action`` so that only its first call does anything: a bunch shares one."""
    calls = [action]

    def call() -> None:
        if calls:
            calls.pop()()

    return call


def _mean(loss: Any, process_set: ProcessSet) -> Any:
    """Return the mean of the processes' losses, so that all decide alike by it."""
    if isinstance(loss, Tensor):
        return allreduce_(loss.detach().clone(), process_set=process_set)
    if isinstance(loss, float):
        return float(allreduce_(torch.tensor([loss], dtype=torch.float64), process_set=process_set))
    return loss


def _remove(hooks: dict[Tensor, Any]) -> None:
    for hook in hooks.values():
        hook.remove()
    hooks.clear()
