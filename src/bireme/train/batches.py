"""What counts as data for :class:`bireme.Module`, and what a batch is.

Data is any iterable of batches that starts again each time it is iterated: a ``DataLoader``, a
list. A batch is a pair ``(data, label)`` or a dict ``{"data": ..., "label": ...}``; ``data`` goes
to the net: a tuple or list as positional arguments, a dict as keyword arguments.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from bireme.errors import ConfigError
from bireme.train import nested

__all__ = ("check_repeatable", "epoch_batches", "inputs", "length", "pair", "single_pass")


def pair(batch: Any) -> tuple[nested.Nested, nested.Nested]:
    """Return data and label of ``batch``.

    Raises:
        ConfigError: It has another form.

    Example:
        >>> pair({"data": torch.zeros(1), "label": torch.ones(1)})
        (tensor([0.]), tensor([1.]))
    """
    if isinstance(batch, Mapping) and set(batch) == {"data", "label"}:
        return batch["data"], batch["label"]
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise ConfigError(
        "a batch must be a pair (data, label) or a dict with keys 'data' and 'label', got "
        f"{_form(batch)}; nest several inputs, as in ((x, mask), label)"
    )


def inputs(batch: Any) -> nested.Nested:
    """Return the data of ``batch``, where the label may be missing.

    A pair loses its label, and so does a dict with ``"data"``. A list of one, as a
    ``TensorDataset`` makes, is its one entry. Anything else is data alone.

    Example:
        >>> inputs((torch.zeros(1), torch.ones(1))), inputs([torch.zeros(1)])
        (tensor([0.]), tensor([0.]))
    """
    if isinstance(batch, Mapping):
        return batch["data"] if "data" in batch and set(batch) <= {"data", "label"} else batch
    if isinstance(batch, tuple | list) and len(batch) in (1, 2):
        return batch[0]
    return batch


def single_pass(data: Any, name: str = "data") -> Iterable[Any]:
    """Return ``data`` as batches for one pass; a tensor or array is one batch.

    Raises:
        ConfigError: It cannot be iterated.
    """
    if isinstance(data, torch.Tensor | np.ndarray):
        return [data]
    if not isinstance(data, Iterable) or isinstance(data, str | Mapping):
        raise ConfigError(f"{name} must be an iterable of batches, got {_form(data)}")
    return data


def check_repeatable(name: str, data: Any, num_passes: int) -> None:
    """Refuse data that cannot be gone through ``num_passes`` times.

    Raises:
        ConfigError: It is no iterable of batches, or an iterator that ends for good.
    """
    if isinstance(data, torch.Tensor | np.ndarray):
        raise ConfigError(
            f"{name} must be an iterable of batches, such as a DataLoader; got one "
            f"{type(data).__name__}"
        )
    single_pass(data, name)
    if num_passes > 1 and isinstance(data, Iterator) and not callable(getattr(data, "reset", None)):
        raise ConfigError(
            f"{name} is a one-shot {type(data).__name__}: it is used up after one epoch of "
            f"{num_passes}; pass a list, a DataLoader, or another object that starts again each "
            "time it is iterated"
        )


def epoch_batches(name: str, data: Any, epoch: int) -> Iterator[Any]:
    """Yield the batches of one epoch.

    A ``set_epoch`` of the data or its sampler is called first, as distributed samplers need for
    a new order each epoch; so is a ``reset`` of an iterator.

    Raises:
        ConfigError: There is no batch at all.
    """
    for owner in (data, getattr(data, "sampler", None), getattr(data, "batch_sampler", None)):
        if callable(getattr(owner, "set_epoch", None)):
            owner.set_epoch(epoch)  # type: ignore[union-attr]
    if isinstance(data, Iterator) and callable(getattr(data, "reset", None)):
        data.reset()  # type: ignore[attr-defined]
    empty = True
    for batch in data:
        empty = False
        yield batch
    if empty:
        raise ConfigError(f"{name} has no batches (epoch {epoch})")


def length(data: Any) -> int | None:
    """Return the number of batches, or ``None`` where the data does not know it.

    Example:
        >>> length([1, 2]), length(iter([1, 2]))
        (2, None)
    """
    try:
        return len(data)
    except TypeError:
        return None


def _form(value: Any) -> str:
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"one {type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with keys {list(value)[:5]}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
