"""Collectives that move bytes: broadcast, all-gather, gather, scatter, all-to-all, barrier.

There are two ways to move: `_publish` (what one rank writes, all may read) and `_deliver` (each
rank writes something for each other rank). Tensors are bytes here, whatever their type.
Called by the process group.
"""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
from torch import Tensor

from bireme.collective.bank.bank import Bank
from bireme.collective.bank.elements import raw_bytes
from bireme.errors import MismatchError

__all__ = ("all_gather", "all_to_all", "barrier", "broadcast", "gather", "scatter")


def barrier(bank: Bank, timeout_s: float) -> None:
    """Return when every rank has called this."""
    bank.begin("barrier", timeout_s)
    bank.end_first_step()


def broadcast(bank: Bank, tensor: Tensor, root: int, timeout_s: float) -> None:
    """Make a contiguous tensor what it is on ``root`` (its rank in the bank).

    Raises:
        MismatchError: The ranks do not agree; every rank raises it, and nothing has changed.
        RankLost, WaitTimeout: A rank is missing; the tensor may be half written.
    """
    raw = raw_bytes(tensor)
    bank.begin(f"broadcast of {tensor.numel()} {tensor.dtype} from {bank.names[root]}", timeout_s)
    sizes = [raw.size if rank == root else 0 for rank in range(bank.size)]
    outputs = [raw if rank == root else None for rank in range(bank.size)]
    _publish(bank, sizes, raw, outputs)


def all_gather(bank: Bank, source: Tensor, outputs: Sequence[Tensor], timeout_s: float) -> None:
    """Write every rank's ``source`` into ``outputs``, one for each rank; sizes may differ."""
    raws = [raw_bytes(output) for output in outputs]
    _gather(bank, "all_gather", source, raws, timeout_s)


def gather(
    bank: Bank, source: Tensor, outputs: Sequence[Tensor] | None, root: int, timeout_s: float
) -> None:
    """Write every rank's ``source`` into ``outputs`` on the root; equal sizes.

    Args:
        bank: The bank.
        source: Contiguous.
        outputs: One contiguous tensor for each rank on the root, None elsewhere.
        root: Rank in the bank.
        timeout_s: How long it may take.
    """
    size = raw_bytes(source).size
    raws: list[Any] = [None] * bank.size if outputs is None else [raw_bytes(o) for o in outputs]
    name = f"gather to {bank.names[root]} of {size} B"
    bank.begin(name, timeout_s)
    _publish(
        bank, [size if rank != root else 0 for rank in range(bank.size)], raw_bytes(source), raws
    )


def scatter(
    bank: Bank, inputs: Sequence[Tensor] | None, output: Tensor, root: int, timeout_s: float
) -> None:
    """Write the root's ``inputs``, one for each rank, into their ``output``; equal sizes."""
    size = raw_bytes(output).size
    bank.begin(f"scatter from {bank.names[root]} of {size} B", timeout_s)
    sizes = np.zeros((bank.size, bank.size), np.int64)
    sizes[root] = size
    sends: list[Any] = [None] * bank.size if inputs is None else [raw_bytes(i) for i in inputs]
    receives: list[Any] = [None] * bank.size
    receives[root] = raw_bytes(output)
    _deliver(bank, sizes, sends, receives, is_first=True)


def all_to_all(
    bank: Bank,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    timeout_s: float,
    *,
    are_equal: bool = False,
) -> None:
    """Write each rank's ``inputs[q]`` into rank q's ``outputs`` at this rank's place.

    Args:
        bank: The bank.
        inputs: One contiguous tensor for each rank.
        outputs: The same.
        timeout_s: How long it may take.
        are_equal: The caller knows that all tensors have the same size on all ranks, or that the
            ranks do not agree. Otherwise one step more compares sizes.

    Raises:
        MismatchError: A size sent is not the size awaited; every rank raises it.
    """
    sends, receives = [raw_bytes(each) for each in inputs], [raw_bytes(each) for each in outputs]
    if are_equal:
        bank.begin(f"all_to_all of {sends[0].size} B to each", timeout_s)
        sizes = np.full((bank.size, bank.size), sends[0].size, np.int64)
    else:
        bank.begin("all_to_all", timeout_s)
        sizes = _compare_sizes(bank, sends, receives)
    _deliver(bank, sizes, sends, receives, is_first=are_equal)


def _gather(bank: Bank, name: str, source: Tensor, raws: list[Any], timeout_s: float) -> None:
    sizes = [raw.size for raw in raws]
    raw = raw_bytes(source)
    told = np.array(sizes, np.int64).tobytes()
    # A rank whose own size is not what it expects of itself would deceive the others.
    what = f"{raw.size} B" if min(sizes) == max(sizes) == raw.size else f"sizes {crc32(told):08x}"
    if raw.size != sizes[bank.rank]:
        what = f"{raw.size} B into {sizes[bank.rank]} B on rank {bank.names[bank.rank]}"
    bank.begin(f"{name} of {what}", timeout_s)
    _publish(bank, sizes, raw, raws)


def _publish(bank: Bank, sizes: Sequence[int], mine: Any, outputs: Sequence[Any]) -> None:
    """Write ``sizes[r]`` bytes of each rank r's ``mine`` into ``outputs[r]`` where it is not None.

    Ends the operation's first step.
    """
    me, areas, piece = bank.rank, bank.raw_areas, bank.area_bytes
    num_pieces = max(-(-max(sizes) // piece), 1)
    for number in range(num_pieces + 1):
        odd = bank.steps.step & 1
        if number < num_pieces:
            source = mine[number * piece : min((number + 1) * piece, sizes[me])]
            if source.size:
                np.copyto(areas[odd][me][: source.size], source)
        for rank, output in enumerate(outputs):
            if number and rank != me and output is not None:
                start = (number - 1) * piece
                target = output[start : min(start + piece, sizes[rank])]
                if target.size:
                    np.copyto(target, areas[1 - odd][rank][: target.size])
        if not number:
            bank.end_first_step()
        elif number < num_pieces:
            bank.steps.end_step()
    _keep_own(mine, outputs[me])


def _keep_own(source: Any, target: Any) -> None:
    if target is not None and source is not None and target.size:
        if target.ctypes.data != source.ctypes.data:
            np.copyto(target, source)


def _compare_sizes(bank: Bank, sends: Sequence[Any], receives: Sequence[Any]) -> Any:
    """Tell everybody who sends how much to whom; end the first step."""
    half = bank.raw_areas[bank.steps.step & 1]
    mine = np.array([[each.size for each in side] for side in (sends, receives)], np.int64)
    if mine.nbytes > bank.area_bytes:
        raise MismatchError(f"all_to_all between {bank.size} ranks: too many for this memory")
    half[bank.rank][: mine.nbytes] = mine.reshape(-1).view(np.uint8)
    bank.end_first_step()
    told = [area[: mine.nbytes].view(np.int64).reshape(2, bank.size) for area in half]
    sent, awaited = np.stack([each[0] for each in told]), np.stack([each[1] for each in told])
    wrong = np.argwhere(sent != awaited.T)
    if len(wrong):
        source, target = wrong[0]
        raise MismatchError(
            f"all_to_all: rank {bank.names[source]} sends {sent[source, target]} bytes to rank "
            f"{bank.names[target]}, which awaits {awaited[target, source]}"
        )
    return sent


def _deliver(
    bank: Bank, sizes: Any, sends: Sequence[Any], receives: Sequence[Any], *, is_first: bool
) -> None:
    """Write ``sizes[p][q]`` bytes of rank p's ``sends[q]`` into rank q's ``receives[p]``."""
    me, areas = bank.rank, bank.raw_areas
    piece = bank.area_bytes // bank.size // 64 * 64
    away = sizes.copy()
    np.fill_diagonal(away, 0)
    num_pieces = max(-(-int(away.max()) // piece), 1)
    for number in range(num_pieces + 1):
        odd = bank.steps.step & 1
        begin = number * piece
        for rank in _ranks(away[me] > begin) if number < num_pieces else ():
            source = sends[rank][begin : begin + piece]
            np.copyto(areas[odd][me][rank * piece : rank * piece + source.size], source)
        begin -= piece
        for rank in _ranks(away[:, me] > begin) if number else ():
            target = receives[rank][begin : begin + piece]
            np.copyto(target, areas[1 - odd][rank][me * piece : me * piece + target.size])
        if not number and is_first:
            bank.end_first_step()
        elif number < num_pieces:
            bank.steps.end_step()
    _keep_own(sends[me], receives[me])


def _ranks(are_meant: Any) -> list[int]:
    found: list[int] = np.flatnonzero(are_meant).tolist()
    return found
