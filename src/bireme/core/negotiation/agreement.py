"""Whether the ranks mean the same operation, and what they only know together. PURE.

Called by the coordinator once every rank of a set has submitted a name.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby

from bireme.core.negotiation.messages import CONTROL_KINDS, Kind, Request
from bireme.types.topology import ReduceOp

__all__ = ("ROWS", "describe_ranks", "disagreement", "not_with_join", "objection", "sizes_of")

ROWS = (Kind.ALLGATHER, Kind.REDUCESCATTER, Kind.ALLTOALL)
"""Operations on rows, of which a scalar has none."""
_OWN_ROWS = (Kind.ALLGATHER, Kind.ALLTOALL)


def disagreement(requests: Mapping[int, Request]) -> str | None:
    """Return what the ranks of one operation do not agree on, or None.

    Args:
        requests: What each rank said, at least one.

    Example:
        >>> disagreement({
        ...     0: Request("a", Kind.ALLREDUCE, "float32", (2,)),
        ...     1: Request("a", Kind.ALLREDUCE, "float32", (3,)),
        ... })
        "a: the ranks' shapes differ: rank 0 has (2,); rank 1 has (3,)"
    """
    first = next(iter(requests.values()))
    for what, look in _ASPECTS:
        if what == "shapes" and first.kind in _OWN_ROWS:
            look = _trailing
        said = {rank: look(request) for rank, request in requests.items()}
        if len(set(said.values())) > 1:
            return f"{first.name}: the ranks' {what} differ: {_who_said_what(said)}"
    return _impossible(first)


def _impossible(request: Request) -> str | None:
    """Return why an operation that all agree on cannot be done."""
    if request.kind in ROWS and not request.shape:
        return f"{request.name}: {request.kind.name.lower()} takes no scalars, they have no rows"
    if request.kind is Kind.REDUCESCATTER and request.op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        return (
            f"{request.name}: reducescatter takes SUM and AVERAGE, not {ReduceOp(request.op).name}"
        )
    return None


def _trailing(request: Request) -> str:
    return f"{len(request.shape)} dimensions, (*{''.join(f', {n}' for n in request.shape[1:])})"


_ASPECTS: tuple[tuple[str, Callable[[Request], object]], ...] = (
    ("operations", lambda request: request.kind.name.lower()),
    ("dtypes", lambda request: request.dtype),
    ("devices", lambda request: request.device),
    ("shapes", lambda request: request.shape),
    ("reductions", lambda request: ReduceOp(request.op).name),
    ("prescale factors", lambda request: request.prescale),
    ("postscale factors", lambda request: request.postscale),
    ("root ranks", lambda request: request.root),
    ("groups", lambda request: (request.group, request.group_size)),
    (
        "numbers of ranks",
        lambda request: len(request.numbers) if request.kind is Kind.ALLTOALL else 0,
    ),
    (
        "process sets",
        lambda request: request.numbers if request.kind is not Kind.ALLTOALL else (),
    ),
)


def _who_said_what(said: Mapping[int, object]) -> str:
    parts = []
    ordered = sorted(said.items(), key=lambda pair: str(pair[1]))
    for value, pairs in groupby(ordered, key=lambda pair: pair[1]):
        parts.append((sorted(rank for rank, _ in pairs), value))
    parts.sort()
    return "; ".join(f"{describe_ranks(ranks)} {_have(ranks)} {value}" for ranks, value in parts)


def _have(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def describe_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in words, runs of them as such.

    Example:
        >>> describe_ranks([3]), describe_ranks([0, 1, 2, 5])
        ('rank 3', 'ranks 0-2, 5')
    """
    runs: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    text = ", ".join(
        f"{first}"
        if first == last
        else f"{first}-{last}"
        if last > first + 1
        else f"{first}, {last}"
        for first, last in runs
    )
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


def sizes_of(ranks: Sequence[int], requests: Mapping[int, Request]) -> tuple[int, ...]:
    """Return what each rank of a set must know of the others' tensors.

    Rows by rank for an all-gather; for an all-to-all, rows by sender and receiver.

    Args:
        ranks: The set's ranks, sorted; each has a request where the operation needs sizes.
        requests: What each rank said.
    """
    kind = next(iter(requests.values())).kind
    if kind is Kind.ALLGATHER:
        return tuple(requests[rank].shape[0] for rank in ranks)
    if kind is Kind.ALLTOALL:
        return tuple(rows for rank in ranks for rows in requests[rank].numbers)
    return ()


def not_with_join(request: Request, joined: Iterable[int]) -> str:
    """Return why an operation cannot run once ranks have no more data.

    Example:
        >>> not_with_join(Request("a", Kind.BROADCAST), [1])
        'broadcast is not supported with Join at this time: rank 1 joined'
    """
    return (
        f"{request.kind.name.lower()} is not supported with Join at this time: "
        f"{describe_ranks(list(joined))} joined"
    )


def objection(requests: Mapping[int, Request], joined: Collection[int]) -> str | None:
    """Return why the ranks' operation cannot run, or None.

    Args:
        requests: What each rank said, at least one.
        joined: Ranks that have no more data.
    """
    first = next(iter(requests.values()))
    message = disagreement(requests)
    if message is None and joined and first.kind not in (Kind.ALLREDUCE, *CONTROL_KINDS):
        message = f"{first.name}: {not_with_join(first, joined)}"
    return message
