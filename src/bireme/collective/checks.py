"""What can be wrong with an operation on its own, found before anything is changed.

Called by the engines at submission. What only the ranks together can see is the coordinator's.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bireme.errors import ConfigError
from bireme.types.topology import ReduceOp
from bireme.update.layout import lies_plain

__all__ = (
    "DTYPES",
    "check_names",
    "check_outs",
    "check_reduction",
    "check_root",
    "check_set_ranks",
    "check_tensor",
    "splits_of",
)

DTYPES = frozenset(
    {
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
    }
)
"""What tensors may consist of."""

_ORDERED = (ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT)


def check_tensor(tensor: object, name: str) -> None:
    """Refuse what no operation takes.

    Raises:
        ConfigError: It is no tensor, not dense, not contiguous, or of another element type.
    """
    if not isinstance(tensor, Tensor):
        raise ConfigError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ConfigError(f"{name}: the tensor is sparse ({tensor.layout}); pass a dense one")
    if tensor.dtype not in DTYPES:
        raise ConfigError(f"{name}: Tensor type {tensor.dtype} is not supported.")
    if not tensor.is_contiguous():
        raise ConfigError(f"{name}: Tensor is required to be contiguous; call .contiguous()")
    if not lies_plain(tensor):
        raise ConfigError(
            f"{name}: the tensor's memory holds its elements negated or conjugated; call "
            ".resolve_neg() and .resolve_conj()"
        )


def check_names(tensors: Sequence[Tensor] | Tensor, names: Sequence[str]) -> None:
    """Refuse names that do not go with the tensors.

    Raises:
        ConfigError: There are none, or not one for each tensor, or a name appears twice.
    """
    if isinstance(tensors, Tensor) or isinstance(names, str):
        raise ConfigError("tensors and names are sequences; wrap a single one in a list")
    if not tensors:
        raise ConfigError("there is nothing to do: the sequence of tensors is empty")
    if len(names) != len(tensors):
        raise ConfigError(f"got {len(tensors)} tensors and {len(names)} names")
    if len(set(names)) != len(names):
        raise ConfigError(f"a name appears twice in one group: {sorted(names)}")
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a name is a text that is not empty, got {name!r}")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the name {name!a} cannot be sent: it is not valid text") from None


def check_reduction(dtype: torch.dtype, op: ReduceOp, scales: tuple[float, float]) -> None:
    """Refuse a reduction that has no meaning for a type.

    Raises:
        ConfigError: As named.
    """
    for factor in scales:
        if not isinstance(factor, int | float) or not math.isfinite(factor):
            raise ConfigError(f"a factor must be a finite number, got {factor!r}")
    if dtype is torch.bool and (op in (ReduceOp.AVERAGE, ReduceOp.ADASUM) or scales != (1.0, 1.0)):
        raise ConfigError(f"bool tensors have no {op.name} and no factors; convert them first")
    if dtype.is_complex and op in _ORDERED:
        raise ConfigError(f"complex tensors have no {op.name} here; only SUM, AVERAGE and ADASUM")
    if op is ReduceOp.ADASUM and not (dtype.is_floating_point or dtype.is_complex):
        raise ConfigError(f"ADASUM takes floating tensors, got {dtype}")


def check_outs(tensors: Sequence[Tensor], outs: Sequence[Tensor] | None) -> None:
    """Refuse outputs that cannot hold the results.

    Raises:
        ConfigError: Another number, shape, dtype or device than the tensors, or not contiguous.
    """
    if outs is None:
        return
    if len(outs) != len(tensors):
        raise ConfigError(f"got {len(tensors)} tensors and {len(outs)} outputs")
    for tensor, out in zip(tensors, outs, strict=True):
        if out is tensor:
            continue
        check_tensor(out, "out")
        if out.shape != tensor.shape or out.dtype != tensor.dtype or out.device != tensor.device:
            raise ConfigError(
                f"an output is {out.dtype} {tuple(out.shape)} on {out.device}, its tensor "
                f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
            )


def check_root(root_rank: int, ranks: Sequence[int]) -> None:
    """Refuse a root that does not take part.

    Raises:
        ConfigError: It does not.
    """
    if root_rank not in ranks:
        raise ConfigError(f"root_rank {root_rank} is not among the ranks {list(ranks)}")


def check_set_ranks(ranks: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the ranks of a new process set, sorted.

    Raises:
        ConfigError: There are none, one appears twice, or one is not a rank of the job.
    """
    chosen = sorted(ranks)
    if not chosen:
        raise ConfigError("a process set needs at least one rank")
    if len(set(chosen)) != len(chosen):
        raise ConfigError(f"a rank appears twice in {chosen}")
    for rank in chosen:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < size:
            raise ConfigError(f"ranks are integers >= 0 and < {size}, got {rank!r}")
    return tuple(chosen)


def splits_of(tensor: Tensor, splits: Tensor | None, size: int, name: str) -> tuple[int, ...]:
    """Return how many rows go to each of ``size`` ranks.

    Raises:
        ConfigError: ``splits`` is not int32, not of that length, negative or too much; or the
            rows cannot be dealt evenly.
    """
    num_rows = tensor.shape[0] if tensor.ndim else 0
    if splits is None:
        if num_rows % size:
            raise ConfigError(
                f"{name}: splits must be given, since {num_rows} rows cannot be dealt evenly to "
                f"{size} ranks"
            )
        return (num_rows // size,) * size
    if not isinstance(splits, Tensor) or splits.dtype is not torch.int32:
        kind = splits.dtype if isinstance(splits, Tensor) else type(splits).__name__
        raise ConfigError(f"{name}: splits must be a torch.int32 tensor, got {kind}")
    if tuple(splits.shape) != (size,):
        raise ConfigError(
            f"{name}: splits must have one entry for each of {size} ranks, got shape "
            f"{tuple(splits.shape)}"
        )
    rows = tuple(splits.tolist())
    if min(rows) < 0 or sum(rows) > num_rows:
        raise ConfigError(f"{name}: splits {list(rows)} do not fit a tensor of {num_rows} rows")
    return rows
