"""Operations on more than 2^31 elements, on two ranks; ``huge.py FOLDER``, by a launcher."""

import sys
import time
from pathlib import Path

import torch

import bireme.horovod.torch as hvd

MANY = 2**31 + 8
HALF = 2**30 + 8
WIDE = 8
"""Columns: counts of rows are int32, as Horovod's."""


def some(length):
    """Return places in a tensor of that length, on both sides of 2^31 where there are two."""
    near = [0, 1, length // 2, 2**31 - 1, 2**31, 2**31 + 1, length - 2, length - 1]
    return torch.tensor([place for place in near if place < length])


def expect(tensor, value, length):
    assert tensor.numel() == length, tensor.shape
    assert set(tensor.view(-1)[some(length)].tolist()) == {value}, tensor.view(-1)[some(length)]


def full(length, value):
    return torch.full((length,), value, dtype=torch.int8)


def allreduce():
    expect(hvd.allreduce_(full(MANY, hvd.rank() + 1), op=hvd.Sum), 3, MANY)


def mean():
    expect(hvd.allreduce_(full(MANY, 3 * hvd.rank() + 1), op=hvd.Average), 2, MANY)


def fused():
    tensors = hvd.grouped_allreduce_([full(HALF, 1), full(HALF, 2)], op=hvd.Sum)
    for tensor, value in zip(tensors, (2, 4), strict=True):
        expect(tensor, value, HALF)


def broadcast():
    expect(hvd.broadcast_(full(MANY, hvd.rank()), 1), 1, MANY)


def allgather():
    length = HALF + hvd.rank()
    whole = hvd.allgather(full(length, hvd.rank() + 1))
    assert whole.numel() == 2 * HALF + 1
    assert [whole[each].item() for each in (0, HALF - 1, HALF, 2**31, -1)] == [1, 1, 2, 2, 2]


def alltoall():
    # Rank 0 gives everything to rank 1: more than 2^31 elements by one split.
    rows = MANY // WIDE
    sent = full(MANY, 5).view(rows, WIDE) if hvd.rank() == 0 else full(0, 0).view(0, WIDE)
    splits = torch.tensor([0, rows if hvd.rank() == 0 else 0], dtype=torch.int32)
    result, received = hvd.alltoall(sent, splits)
    if hvd.rank() == 1:
        assert received.tolist() == [rows, 0]
        expect(result, 5, MANY)


def reducescatter():
    mine = hvd.reducescatter(full(MANY, hvd.rank() + 1).view(-1, WIDE), op=hvd.Sum)
    # An odd number of rows: the first rank has one more.
    expect(mine, 3, WIDE * (MANY // WIDE // 2 + (hvd.rank() == 0)))


ALL = (allreduce, mean, fused, broadcast, allgather, alltoall, reducescatter)


def main(folder):
    torch.set_num_threads(1)
    hvd.init()
    for operation in ALL:
        began_s = time.monotonic()
        operation()
        hvd.barrier()
        if hvd.rank() == 0:
            sys.stdout.write(f"{operation.__name__}: {time.monotonic() - began_s:.1f} s\n")
            sys.stdout.flush()
    Path(folder, f"fine-{hvd.rank()}").touch()
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
