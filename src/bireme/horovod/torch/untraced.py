"""Keeps ``torch.compile`` out of what talks with other processes. Used by every operation here.

Dynamo would trace into the engine's sockets, locks and shared memory, and fail in the middle of an
exchange. A compiled function is cut in two where it calls what is marked here.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import torch

if TYPE_CHECKING:
    from types import FunctionType

__all__ = ("untraced",)

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs as it is, also where compiled code calls it.

    It costs next to nothing elsewhere: ``torch.compiler.disable`` itself would import the compiler
    into every process, which takes a second, and add a microsecond to each call.

    Args:
        function: What the compiler must not look into.

    Example:
        >>> untraced(lambda x: x + 1)(2)
        3
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_dynamo_compiling():
            return function(*args, **kwargs)
        # Only a tracing compiler comes here; what it runs then is not traced.
        outside: Callable[P, R] = torch.compiler.disable(function)
        return outside(*args, **kwargs)

    # The compiler keeps what it found out for each code, and gives up on one with many callers.
    own = cast("FunctionType", call)
    own.__code__ = own.__code__.replace(co_name=own.__name__)
    return call
