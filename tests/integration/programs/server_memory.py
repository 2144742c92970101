"""What the servers of a job hold for one value of 40 MB in 161 keys, after each of many steps."""

import json
import os
import sys
from pathlib import Path

import torch
from tests.integration.jobs import ROOT
from tests.integration.programs.harness import Checks
from tests.integration.programs.memory import own_bytes

sys.path.insert(0, str(ROOT / "benchmarks"))
from bench_parameter_server import resnet50_sizes, scaled

SIZES = scaled(resnet50_sizes(), 10_000_000)
NUM_STEPS = 40

check = Checks()


@check
def server_memory(job):
    store = job.store()
    servers = [int(path.suffix[1:]) for path in job.out.glob("server.*") if path.suffix != ".pid"]
    # The first steps load libraries.
    store.init(-1, torch.zeros(1000))
    for _ in range(5):
        store.pushpull(-1, torch.ones(1000), torch.zeros(1000))
    store.barrier()
    before = {server: own_bytes(server) for server in servers}
    store.barrier()
    keys = list(range(len(SIZES)))
    store.init(keys, [torch.zeros(size) for size in SIZES])
    grads, outs = ([torch.ones(size) for size in SIZES] for _ in range(2))
    most = dict.fromkeys(servers, 0)
    for _ in range(NUM_STEPS):
        store.pushpull(keys, grads, outs)
        store.barrier()
        most = {server: max(most[server], own_bytes(server) - before[server]) for server in most}
        store.barrier()
    values = dict.fromkeys(range(len(servers)), 0)
    for key, size in zip(keys, SIZES, strict=True):
        assert torch.equal(outs[key], torch.full((size,), float(job.size)))
        for span in store._directory.find([key])[0].spans:
            values[span.server] += 4 * span.length
    held = {"values": sorted(values.values()), "most": sorted(most.values())}
    (job.out / f"held-{job.rank}.json").write_text(json.dumps(held))


if __name__ == "__main__":
    # One file for each process: the harness keeps the last one's number only.
    (Path(sys.argv[1]) / f"{os.environ['BIREME_ROLE']}.{os.getpid()}").touch()
    check.run()
