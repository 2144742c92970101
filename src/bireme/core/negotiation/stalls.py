"""The words in which a stall is told: what waits, for how long, and for whom. PURE."""

from collections.abc import Container, Mapping, Sequence

from bireme.core.negotiation.agreement import describe_ranks
from bireme.core.negotiation.messages import Request

__all__ = ("stall_report",)

_MOST_NAMES = 6


def stall_report(
    waiting: Sequence[tuple[Request, Sequence[int]]],
    sets: Mapping[int, Sequence[int]],
    joined: Container[int],
    waited_s: float,
) -> str:
    """Return what a user should know of operations that some ranks have not submitted.

    Args:
        waiting: Each operation, and the ranks that have submitted it.
        sets: The ranks of each process set.
        joined: Ranks that need not submit anything.
        waited_s: The longest wait.

    Example:
        >>> from bireme.core.negotiation.messages import Kind
        >>> print(stall_report([(Request("a", Kind.ALLREDUCE), [0])], {0: (0, 1, 2)}, (), 60.0))
        operations wait for ranks that have not submitted them for 60 s: \
ranks 1, 2 miss a (submitted by rank 0)
    """
    missing: dict[tuple[int, ...], list[Request]] = {}
    there: dict[str, Sequence[int]] = {}
    for request, ranks in waiting:
        everyone = sets.get(request.process_set, ())
        absent = tuple(r for r in everyone if r not in ranks and r not in joined)
        missing.setdefault(absent, []).append(request)
        there[request.name] = ranks
    parts = [
        f"{describe_ranks(absent)} {'misses' if len(absent) == 1 else 'miss'} "
        f"{_names(requests)} (submitted by {describe_ranks(there[requests[0].name])})"
        for absent, requests in missing.items()
    ]
    return (
        f"operations wait for ranks that have not submitted them for {waited_s:.0f} s: "
        + "; ".join(parts)
    )


def _names(requests: Sequence[Request]) -> str:
    names = [request.name for request in requests[:_MOST_NAMES]]
    more = len(requests) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
