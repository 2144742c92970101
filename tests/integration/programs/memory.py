"""What a store of 64 MB costs in memory, on a server and on every worker of a job."""

import ctypes
import gc
import json
import os
from pathlib import Path

import torch
from tests.integration.programs.harness import Checks, adding, equal

COUNT, LENGTH = 16, 1 << 20
SIZE_BYTES = COUNT * LENGTH * 4

check = Checks()


@check
def memory(job):
    store, server = job.store(), int((job.out / "server.pid").read_text())
    keys = list(range(COUNT))
    store.init(-1, torch.zeros(1 << 20))
    # The first call of each kind loads libraries, here and on the server.
    job.store().set_optimizer(adding())
    store.pushpull(-1, torch.ones(1 << 20))
    store.push(-1, torch.ones(1 << 20))
    store.pull(-1)
    grads = [torch.full((LENGTH,), float(number)) for number in keys]
    outs = [torch.zeros(LENGTH).fill_(1) for _ in keys]
    store.barrier()
    worker_before, server_before = held_bytes(), own_bytes(server)
    store.barrier()
    store.init(keys, grads)
    added = {}
    for _ in range(5):
        store.pushpull(keys, grads, outs)
    store.barrier()
    added["pushpull"] = held_bytes() - worker_before
    for number in keys:
        equal(outs[number], job.size * number)
    for _ in range(3):
        store.push(keys, grads)
        store.pull(keys, outs)
    store.barrier()
    added["push"] = held_bytes() - worker_before
    added["server"] = own_bytes(server) - server_before
    store.barrier()
    (job.out / f"memory-{job.rank}.json").write_text(json.dumps(added))


def held_bytes():
    """Return what this process holds: not what it has freed and the C library keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return own_bytes(os.getpid())


def own_bytes(pid):
    """Return the memory of a process that no file is behind; over sockets it shares none."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    return 1024 * sum(int(sizes[name].split()[0]) for name in ("RssAnon", "RssShmem"))


if __name__ == "__main__":
    check.run()
