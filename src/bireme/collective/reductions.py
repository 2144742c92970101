"""The reductions of ``torch.distributed``, and ours for them. Called by the process group."""

from typing import Any

from torch.distributed import ReduceOp

from bireme.collective.bank.elements import Reduction
from bireme.errors import UnsupportedError

__all__ = ("reduction_of",)

_OPS = {
    ReduceOp.SUM: Reduction.SUM,
    ReduceOp.AVG: Reduction.AVG,
    ReduceOp.PRODUCT: Reduction.PRODUCT,
    ReduceOp.MIN: Reduction.MIN,
    ReduceOp.MAX: Reduction.MAX,
    ReduceOp.BAND: Reduction.BAND,
    ReduceOp.BOR: Reduction.BOR,
    ReduceOp.BXOR: Reduction.BXOR,
}


def reduction_of(op: Any) -> Reduction:
    """Return ``torch.distributed``'s operation as ours.

    Raises:
        UnsupportedError: We have none such.

    Example:
        >>> str(reduction_of(ReduceOp.SUM))
        'sum'
    """
    kind = getattr(op, "op", op)
    try:
        return _OPS[kind]
    except (KeyError, TypeError):
        raise UnsupportedError(f"the backend bireme does not compute {kind}") from None
