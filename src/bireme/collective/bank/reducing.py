"""Collectives that compute: all-reduce, reduce, reduce-scatter. Called by the process group.

Everything is cut into runs, one for each rank, which reduces it: its own elements come from its own
tensor, the others' from their areas. Runs pass through the areas piece by piece, so that shared
memory is small, warm, and used over and over; a step writes one piece, reduces the piece of the
step before, and hands out the piece before that.
"""

from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
import torch

from bireme.collective.bank.bank import Bank
from bireme.collective.bank.elements import Array, Reduction
from bireme.collective.bank.strewn import Data, Whole, places_of

__all__ = ("all_reduce", "all_reduce_joint", "all_reduce_many", "cut", "reduce", "reduce_scatter")

_ALIGN = 64


def cut(length: int, num_runs: int) -> list[tuple[int, int]]:
    """Cut ``length`` elements into runs of about equal length.

    Example:
        >>> cut(1000, 3)
        [(0, 384), (384, 768), (768, 1000)]
    """
    each = -(-length // num_runs)
    each = -(-each // _ALIGN) * _ALIGN
    starts = [min(i * each, length) for i in range(num_runs + 1)]
    return list(pairwise(starts))


def all_reduce(bank: Bank, tensor: torch.Tensor, op: Reduction, timeout_s: float) -> None:
    """Reduce a contiguous tensor over all ranks, in place on each.

    Raises:
        UnsupportedError: This cannot be computed with elements of this type.
        MismatchError: The ranks do not agree; the tensor is as it was.
        RankLost, WaitTimeout: A rank is missing; the tensor may be half reduced.
    """
    elements = bank.elements(tensor.dtype, op)
    _all_reduce(bank, Whole(elements, elements.of(tensor)), tensor.dtype, op, timeout_s)


def all_reduce_many(
    bank: Bank,
    sources: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    op: Reduction,
    timeout_s: float,
    factors: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Reduce many tensors as if they were one; other ranks may reduce that one.

    Args:
        bank: The bank.
        sources: Contiguous, of one type.
        targets: Where the results go; may be the sources.
        op: What to compute.
        timeout_s: How long it may take.
        factors: What this rank multiplies by before and after; of float32 and float64 only.

    Raises:
        UnsupportedError, MismatchError, RankLost, WaitTimeout: As `all_reduce`.
    """
    dtype = sources[0].dtype
    # An overflow is the caller's own, and torch does not warn of it either.
    with np.errstate(all="ignore"):
        data = bank.strewn(dtype, op, places_of(sources, targets), factors)
        _all_reduce(bank, data, dtype, op, timeout_s)


def all_reduce_joint(
    bank: Bank, tensors: Sequence[torch.Tensor], op: Reduction, timeout_s: float
) -> int:
    """Reduce the first tensor, and as many of the next as all ranks have at hand, in one step.

    Another rank may have others at hand, or call `all_reduce` for the first alone.

    Args:
        bank: The bank.
        tensors: Contiguous, of one type, each of ``bank.flat_bytes`` at most. Not all of them may
            fit into one step.
        op: What to compute.
        timeout_s: How long it may take.

    Returns:
        How many were reduced, the same on every rank, 1 or more.

    Raises:
        UnsupportedError, MismatchError, RankLost, WaitTimeout: As `all_reduce` of the first.
    """
    dtype = tensors[0].dtype
    elements, areas = bank.elements(dtype, op), bank.areas(dtype)
    room = bank.joint_bytes // elements.item_bytes
    arrays: list[Array] = []
    stops, stop = list[int](), 0
    for tensor in tensors[: bank.most_offers + 1]:
        stop += tensor.numel()
        if arrays and stop > room:
            break
        arrays.append(elements.of(tensor))
        stops.append(stop)
    lengths = [len(array) for array in arrays]
    bank.begin(f"all_reduce {op} of {lengths[0]} {dtype}", timeout_s, lengths[1:])
    half = areas[bank.steps.step & 1]
    for array, stop in zip(arrays, stops, strict=True):
        elements.copy(half[bank.rank][stop - len(array) : stop], array)
    num_done = 1 + bank.end_first_step()
    for array, stop in zip(arrays[:num_done], stops, strict=False):
        if len(array):
            elements.fold([area[stop - len(array) : stop] for area in half], array, op)
    return num_done


def _all_reduce(
    bank: Bank, data: Data, dtype: torch.dtype, op: Reduction, timeout_s: float
) -> None:
    bank.begin(f"all_reduce {op} of {len(data)} {dtype}", timeout_s)
    if len(data) * bank.elements(dtype, op).item_bytes <= bank.flat_bytes:
        _flat(bank, data, dtype, op, list(range(bank.size)))
    else:
        _runs(bank, data, dtype, op, keeps=True)


def reduce(bank: Bank, tensor: torch.Tensor, root: int, op: Reduction, timeout_s: float) -> None:
    """Reduce a contiguous tensor over all ranks, in place on the root; others keep theirs.

    Args:
        bank: The bank.
        tensor: Shape and type equal on all ranks.
        root: Rank in the bank.
        op: What to compute.
        timeout_s: How long it may take.
    """
    elements = bank.elements(tensor.dtype, op)
    array = elements.of(tensor)
    label = f"reduce {op} of {len(array)} {tensor.dtype} to {bank.names[root]}"
    bank.begin(label, timeout_s)
    data = Whole(elements, array)
    if len(array) * elements.item_bytes <= bank.flat_bytes:
        _flat(bank, data, tensor.dtype, op, [root])
    else:
        _runs(bank, data, tensor.dtype, op, keeps=bank.rank == root)


def reduce_scatter(
    bank: Bank,
    inputs: Sequence[torch.Tensor],
    output: torch.Tensor,
    op: Reduction,
    timeout_s: float,
) -> None:
    """Reduce one tensor for each rank, and give each rank its own.

    Args:
        bank: The bank.
        inputs: One contiguous tensor for each rank, in order; what they hold is kept.
        output: Contiguous, of the size of this rank's input; may be that input.
        op: What to compute.
        timeout_s: How long it may take.
    """
    elements = bank.elements(output.dtype, op)
    arrays = [elements.of(tensor) for tensor in inputs]
    lengths = [len(array) for array in arrays]
    told = (
        f"{lengths[0]} each"
        if len({*lengths}) == 1
        else f"lengths {crc32(repr(lengths).encode()):08x}"
    )
    bank.begin(f"reduce_scatter {op} {output.dtype} of {told}", timeout_s)
    scatter_runs(bank, arrays, elements.of(output), output.dtype, op)


def _flat(bank: Bank, data: Data, dtype: torch.dtype, op: Reduction, takers: list[int]) -> None:
    """Everybody who wants the result computes all of it."""
    elements, areas = bank.elements(dtype, op), bank.areas(dtype)
    half = areas[bank.steps.step & 1]
    length = len(data)
    data.write(half[bank.rank][:length], 0, length)
    bank.end_first_step()
    if length and bank.rank in takers:
        results = data.blank()
        elements.fold([area[:length] for area in half], results, op)
        data.settle(results)


def _runs(bank: Bank, data: Data, dtype: torch.dtype, op: Reduction, *, keeps: bool) -> None:
    elements, areas = bank.elements(dtype, op), bank.areas(dtype)
    runs = cut(len(data), bank.size)
    piece = bank.area_bytes // bank.size // elements.item_bytes // _ALIGN * _ALIGN
    num_pieces = -(-max(stop - start for start, stop in runs) // piece)
    me = bank.rank
    others = [(rank, *runs[rank]) for rank in range(bank.size) if rank != me]
    my_start, my_stop = runs[me]
    for number in range(num_pieces + 2):
        odd = bank.steps.step & 1
        mine, theirs = areas[odd][me], areas[1 - odd]
        if number < num_pieces:
            for rank, start, stop in others:
                first, last = _part(start, stop, piece, number)
                data.write(mine[rank * piece : rank * piece + last - first], first, last)
        start = my_start + (number - 1) * piece
        stop = min(start + piece, my_stop)
        if 0 < number and start < stop:
            at, end = me * piece, me * piece + stop - start
            total = mine[at:end]
            data.fold([area[at:end] for area in theirs], me, total, op, start)
            if keeps:
                data.read(total, start, stop)
        if number > 1 and keeps:
            for rank, start, stop in others:
                first, last = _part(start, stop, piece, number - 2)
                area = theirs[rank][rank * piece : rank * piece + last - first]
                data.read(area, first, last)
        if not number:
            bank.end_first_step()
        elif number <= num_pieces:
            bank.steps.end_step()


def _part(start: int, stop: int, piece: int, number: int) -> tuple[int, int]:
    """Return where a piece of a run begins and ends; past the run's end it is empty."""
    first = start + number * piece
    return first, max(first, min(first + piece, stop))


def scatter_runs(
    bank: Bank, arrays: Sequence[Array], output: Array, dtype: torch.dtype, op: Reduction
) -> None:
    """Reduce ``arrays[r]`` over all ranks into rank r's ``output``, within a begun operation."""
    elements, areas = bank.elements(dtype, op), bank.areas(dtype)
    piece = bank.area_bytes // bank.size // elements.item_bytes // _ALIGN * _ALIGN
    num_pieces = max(-(-max(map(len, arrays)) // piece), 1)
    me = bank.rank
    for number in range(num_pieces + 1):
        odd = bank.steps.step & 1
        mine, theirs = areas[odd][me], areas[1 - odd]
        if number < num_pieces:
            for rank, array in enumerate(arrays):
                if rank != me:
                    source = array[number * piece : (number + 1) * piece]
                    elements.copy(mine[rank * piece : rank * piece + len(source)], source)
        own = arrays[me][max(number - 1, 0) * piece : number * piece]
        if len(own):
            at, end = me * piece, me * piece + len(own)
            total = mine[at:end]
            sources = [own if rank == me else theirs[rank][at:end] for rank in range(bank.size)]
            elements.fold(sources, total, op)
            start = (number - 1) * piece
            elements.copy(output[start : start + len(own)], total)
        if not number:
            bank.end_first_step()
        elif number < num_pieces:
            bank.steps.end_step()
