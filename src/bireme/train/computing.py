"""One batch on several contexts: cut, computed side by side, joined again.

:class:`bireme.Module` calls it for training, scoring and predicting.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bireme.errors import ConfigError
from bireme.train import contexts, nested, split, workload

__all__ = ("Computing", "Step", "scalar")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What :meth:`Module.forward_backward` found."""

    sizes: Sequence[int]
    """Samples that each context computed."""

    loss: torch.Tensor
    """Mean loss of the batch, without dimensions, on the first context."""

    pred: nested.Nested
    """What the net returned for the whole batch, on the first context; ``None`` if not wanted."""

    label: nested.Nested
    """The batch's label, on the first context; ``None`` if not wanted."""

    @property
    def num_samples(self) -> int:
        """Samples in the batch."""
        return sum(self.sizes)


class Computing:
    """Computes batches on replicas, each context its share.

    Args:
        replicas: The copies of the net.
        shares: Who gets how much; learns from the time that each training step takes.
        amp_dtype: Compute under ``torch.autocast`` with this type; ``None`` for full precision.
    """

    def __init__(
        self,
        replicas: contexts.Replicas,
        shares: workload.Shares,
        amp_dtype: torch.dtype | None,
    ) -> None:
        self.replicas = replicas
        self.shares = shares
        self._amp_dtype = amp_dtype
        self._counts = [0] * len(replicas)

    @property
    def nets(self) -> list[nn.Module]:
        """The net of each context."""
        return [replica.net for replica in self.replicas]

    def train(
        self,
        data: nested.Nested,
        label: nested.Nested,
        *,
        want_pred: bool,
        begin: Callable[[Sequence[int]], None] | None = None,
    ) -> Step:
        """Add the gradients of one batch to those of every replica that gets a share.

        Args:
            data: Of the batch.
            label: Of the batch.
            want_pred: Also collect what the net returned.
            begin: Told the samples of each replica before any of them begins.

        Raises:
            ConfigError: The batch has no samples, or its parts differ in batch size.
        """
        num_samples, sizes = self._sizes((data, label), "batch")
        slices = _cut((data, label), sizes)
        if begin is not None:
            begin(sizes)
        done = self.replicas.run(self._train_slice, slices, measured=self.shares.measures)
        self.shares.record(sizes, [0.0 if each is None else each.seconds for each in done])
        self._counts = [count + size for count, size in zip(self._counts, sizes, strict=True)]
        found = [(each.value, size) for each, size in zip(done, sizes, strict=True) if each]
        device = self.replicas.first.device
        losses = [value[1].to(device) * (size / num_samples) for value, size in found]
        return Step(
            sizes,
            torch.stack(losses).sum(),
            self._join([value[0] for value, _ in found]) if want_pred else None,
            split.move(label, device) if want_pred else None,
        )

    def take_counts(self) -> list[int]:
        """Return the samples that each context trained on since the last call."""
        counts, self._counts = self._counts, [0] * len(self._counts)
        return counts

    def infer(self, data: nested.Nested) -> nested.Nested:
        """Return the net's outputs for one batch, joined on the first context.

        Raises:
            ConfigError: The batch has no samples, or an output has no batch along axis 0.
        """
        _, sizes = self._sizes(data, "data")
        with torch.no_grad():
            done = self.replicas.run(self._infer_slice, _cut(data, sizes))
        return self._join([each.value for each in done if each is not None])

    def need_loss(self) -> None:
        """Raise unless there is a loss.

        Raises:
            ConfigError: There is none.
        """
        if self.replicas.first.loss is None:
            raise ConfigError(
                "the module has no loss; pass one, such as "
                "Module(net, loss=torch.nn.functional.cross_entropy)"
            )

    def loss(self, pred: nested.Nested, label: nested.Nested) -> torch.Tensor:
        """Return the loss of outputs and labels on the first context."""
        first = self.replicas.first
        assert first.loss is not None
        with torch.no_grad(), self._autocast(first):
            return scalar(first.loss(pred, label))

    @contextlib.contextmanager
    def mode(self, *, training: bool) -> Iterator[None]:
        """Put every replica into training or evaluation mode, and each part back afterwards."""
        before = [(part, part.training) for net in self.nets for part in net.modules()]
        for net in self.nets:
            net.train(training)
        try:
            yield
        finally:
            for part, was in before:
                part.training = was

    def _sizes(self, data: nested.Nested, name: str) -> tuple[int, list[int]]:
        num_samples = nested.batch_size_of(data, name=name)
        if num_samples == 0:
            raise ConfigError("the batch has no samples")
        return num_samples, self.shares.sizes(num_samples)

    def _train_slice(
        self, replica: contexts.Replica, pair: nested.Nested
    ) -> tuple[nested.Nested, torch.Tensor]:
        data, label = pair
        assert replica.loss is not None
        with self._autocast(replica), torch.enable_grad():
            pred = contexts.call_net(replica.net, data)
            loss = scalar(replica.loss(pred, label))
        loss.backward()  # type: ignore[no-untyped-call]
        return pred, loss.detach()

    def _infer_slice(self, replica: contexts.Replica, data: nested.Nested) -> nested.Nested:
        with self._autocast(replica):
            return contexts.call_net(replica.net, data)

    def _autocast(self, replica: contexts.Replica) -> contextlib.AbstractContextManager[object]:
        if self._amp_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(replica.device.type, dtype=self._amp_dtype)

    def _join(self, outputs: Sequence[nested.Nested]) -> nested.Nested:
        device = self.replicas.first.device

        def join(tensors: list[torch.Tensor]) -> torch.Tensor:
            if any(tensor.ndim == 0 for tensor in tensors):
                raise ConfigError("the net returned a number; outputs need the batch along axis 0")
            moved = [tensor.detach().to(device) for tensor in tensors]
            return moved[0] if len(moved) == 1 else torch.cat(moved)

        return nested.merge(outputs, join)


def scalar(loss: Any) -> torch.Tensor:
    """Return a loss as a tensor without dimensions.

    Raises:
        ConfigError: It is not one number.
    """
    if not isinstance(loss, torch.Tensor):
        raise ConfigError(f"loss must return a tensor, got a {type(loss).__name__}")
    if loss.numel() != 1:
        raise ConfigError(
            f"loss must return one number, the mean over its samples; got shape "
            f"{tuple(loss.shape)}; use reduction='mean'"
        )
    return loss.reshape(())


def _cut(data: nested.Nested, sizes: Sequence[int]) -> list[nested.Nested]:
    slices = split.split_by_sizes(data, sizes)
    return [part if size else None for part, size in zip(slices, sizes, strict=True)]
