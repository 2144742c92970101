"""Starts and leaves a job again and again in one process; ``reinits.py CYCLES FOLDER``.

Writes what the process held early on, and at the end.
"""

import gc
import json
import os
import sys
from pathlib import Path

import torch

import bireme.horovod.torch as hvd

WARM = 20


def held():
    gc.collect()
    with open("/proc/self/maps") as maps:
        mapped = sum("bireme" in line for line in maps)
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mapped": mapped,
        "objects": len(gc.get_objects()),
        "resident_bytes": resident,
    }


def main(cycles, folder):
    torch.set_num_threads(1)
    early = rank = None
    for number in range(int(cycles)):
        hvd.init()
        rank, size = hvd.rank(), hvd.size()
        assert hvd.allreduce(torch.full((1000,), float(number)), op=hvd.Sum)[-1] == number * size
        handles = [hvd.allreduce_async(torch.ones(10), name=f"{n}") for n in range(3)]
        if number % 3 == 0:
            # Some are never waited for.
            for handle in handles:
                hvd.synchronize(handle)
        if number % 10 == 0:
            assert hvd.allgather_object(number) == [number] * size
        # A rank that is gone takes no more submissions.
        hvd.barrier()
        hvd.shutdown()
        assert not hvd.is_initialized()
        if number == WARM:
            early = held()
    Path(folder, f"held-{rank}.json").write_text(json.dumps([early, held()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
