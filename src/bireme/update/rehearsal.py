"""Whether torch's optimizer accepts a gradient, found by trying on a tiny tensor.

The optimizer runner asks before any stored value changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from bireme.errors import UnsupportedError
from bireme.types.keys import Key
from bireme.update.rule import Update
from bireme.update.spec import OptimizerSpec, Plain

__all__ = ("Form",)


@dataclass(frozen=True, slots=True)
class Form:
    """All that decides whether an optimizer accepts a gradient, besides its arguments.

    Example:
        >>> Form.of(Update("w", torch.zeros(2), torch.zeros(2)))
        Form(dtype=torch.float32, num_dims=1, sparse_value=False, sparse_grad=False)
    """

    dtype: torch.dtype
    """Element type of the value and of its gradient."""

    num_dims: int
    """Number of dimensions of both."""

    sparse_value: bool
    """Whether the stored value is row-sparse."""

    sparse_grad: bool
    """Whether the gradient is."""

    @classmethod
    def of(cls, update: Update) -> "Form":
        """Return the form of a merged push and of the value that it changes."""
        stored = update.stored
        return cls(stored.dtype, stored.dim(), stored.is_sparse, update.merged.is_sparse)

    def rehearse(
        self,
        spec: OptimizerSpec,
        key: Key,
        first: Mapping[str, Plain],
        then: Mapping[str, Plain],
    ) -> None:
        """Take one step with some arguments and one with others, on a tiny tensor.

        Raises:
            UnsupportedError: torch refuses.
        """
        value = torch.zeros((2,) * self.num_dims, dtype=self.dtype)
        grad = torch.ones_like(value)
        value = value.to_sparse(1) if self.sparse_value else value
        grad = grad.to_sparse(1) if self.sparse_grad else grad
        optimizer = spec.build([value], key)
        try:
            for arguments in (first, then):
                optimizer.param_groups[0].update(arguments)
                value.grad = grad.clone()
                optimizer.step()
        except Exception as error:  # a class by import path may raise anything
            raise self._refusal(spec, key, first == then, error) from error

    def _refusal(
        self, spec: OptimizerSpec, key: Key, steady: bool, error: Exception
    ) -> UnsupportedError:
        if not steady:
            return UnsupportedError(
                f"key {key!r}: {spec.title} cannot change these hyper-parameters and "
                f"keep its state ({error!r}); set_updater(None) first, which drops the state"
            )
        kinds = ("dense", "row-sparse")
        return UnsupportedError(
            f"key {key!r}: {spec.title} cannot apply a {kinds[self.sparse_grad]} "
            f"gradient to a {kinds[self.sparse_value]} value of {self.num_dims} dimensions and "
            f"type {self.dtype} ({error}); push {kinds[not self.sparse_grad]} gradients or "
            "choose another optimizer"
        )
