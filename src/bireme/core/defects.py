"""What a server makes of an exception that its arithmetic should never have raised.

Where nothing has changed yet, the request is refused and the server goes on; elsewhere the values
can no longer be trusted, and the job ends. Called by :mod:`bireme.core.shelf` and its neighbours.
"""

from pathlib import PurePath

from bireme.errors import BiremeError, JobError

__all__ = ("describe_defect", "refusal_of")


def refusal_of(error: Exception) -> BiremeError:
    """Return what to answer a request with that raised ``error`` before it changed anything.

    Example:
        >>> print(refusal_of(MemoryError("no room")))
        the server failed at this request, and its values are as they were: MemoryError: no room
    """
    if isinstance(error, BiremeError):
        return error
    text = f"the server failed at this request, and its values are as they were: {_named(error)}"
    return JobError(text)


def describe_defect(error: Exception) -> str:
    """Return why a server must give up after ``error``, for the message that names it."""
    return f"its values may be wrong after an error that nobody foresaw: {_named(error)}"


def _named(error: Exception) -> str:
    name = f"{type(error).__name__}: {error}"
    trace = error.__traceback__
    if trace is None:
        return name
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{name} ({PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
