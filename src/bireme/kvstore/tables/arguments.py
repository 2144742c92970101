"""Checks what is given to a table. Pure; :class:`~bireme.kvstore.tables.table.Table` calls it."""

import torch

from bireme.errors import ConfigError
from bireme.kvstore.tables.options import TableOptions

__all__ = ("check_gradients", "check_ids")


def check_ids(ids: torch.Tensor, options: TableOptions) -> None:
    """Refuse what are no ids of a table's rows.

    Args:
        ids: Of any shape and type.
        options: The table.

    Raises:
        ConfigError: They are not int64, one-dimensional and on the CPU, or one is out of range.

    Example:
        >>> check_ids(torch.tensor([0, 9]), TableOptions("t", 2, num_rows=10))
    """
    if ids.dtype is not torch.int64:
        raise ConfigError(f"ids must be int64, got {ids.dtype}")
    if ids.dim() != 1 or ids.device.type != "cpu":
        raise ConfigError(
            f"ids must be one-dimensional and on the CPU, got shape {tuple(ids.shape)} on "
            f"{ids.device}"
        )
    limit = options.num_rows
    if limit is not None and len(ids):
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= limit:
            raise ConfigError(
                f"ids run from {low} to {high}, but table {options.name!r} has rows 0 to "
                f"{limit - 1}"
            )


def check_gradients(
    num_ids: int, grads: torch.Tensor, weight: float, options: TableOptions
) -> None:
    """Refuse what cannot be pushed to a table.

    Args:
        num_ids: How many ids the gradients are for.
        grads: Of any shape and type.
        weight: Samples behind the gradients.
        options: The table.

    Raises:
        ConfigError: ``grads`` is not of shape ``(num_ids, dim)`` in the table's type, or
            ``weight`` is negative or not finite.

    Example:
        >>> check_gradients(3, torch.zeros(3, 2), 1.0, TableOptions("t", 2))
    """
    if grads.shape != (num_ids, options.dim) or grads.dtype is not options.dtype:
        raise ConfigError(
            f"gradients of {num_ids} rows of table {options.name!r} are {grads.dtype} of "
            f"shape {tuple(grads.shape)}, not {options.dtype} of shape {(num_ids, options.dim)}"
        )
    if not 0 <= weight < float("inf"):
        raise ConfigError(f"weight must be a finite number >= 0, got {weight}")
