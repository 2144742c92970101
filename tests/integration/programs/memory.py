"""What a store of 64 MB costs in memory, on a server and on every worker of a job."""

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
    worker_before, server_before = own_bytes(os.getpid()), own_bytes(server)
    store.barrier()
    store.init(keys, grads)
    added = {}
    for _ in range(5):
        store.pushpull(keys, grads, outs)
    for number in keys:
        equal(outs[number], job.size * number)
    store.barrier()
    added["pushpull"] = own_bytes(os.getpid()) - worker_before
    for _ in range(3):
        store.push(keys, grads)
        store.pull(keys, outs)
    store.barrier()
    added["push"] = own_bytes(os.getpid()) - worker_before
    added["server"] = own_bytes(server) - server_before
    store.barrier()
    (job.out / f"memory-{job.rank}.json").write_text(json.dumps(added))


def own_bytes(pid):
    """Return the resident memory of a process; over sockets it shares none with its peers."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    return 1024 * int(sizes["VmRSS"].split()[0])


if __name__ == "__main__":
    check.run()
