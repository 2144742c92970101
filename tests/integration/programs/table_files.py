"""Saves a table in one job and goes on with it in another one; ``save`` or ``load`` is told."""

import sys

import torch
from tests.integration.programs.harness import Checks, equal

from bireme import OptimizerSpec
from bireme.nn import ShardedEmbedding

check = Checks()
IDS = torch.cat([torch.arange(20_000), torch.tensor([-(2**63), 2**63 - 1])])


def made(store):
    spec = OptimizerSpec("adam", {"lr": 0.1})
    return ShardedEmbedding(None, 8, kvstore=store, name="t", optimizer=spec, dtype=torch.float64)


def step(layer, number):
    layer(IDS[number::3]).square().sum().backward()
    layer.step()


@check
def it_goes_on(job):
    store, saving = job.store(), sys.argv[2] == "save"
    layer = made(store)
    if saving:
        for number in (0, 1, 0):
            step(layer, number)
        layer.save(str(job.out))
    else:
        step(layer, 2)
        layer.load(str(job.out))
    step(layer, 1)
    rows, path = layer.table.pull(IDS), job.out / "expected.pt"
    store.barrier()
    if saving and job.rank == 0:
        torch.save(rows, path)
    if not saving:
        equal(rows, torch.load(path, weights_only=True))
    store.close()


if __name__ == "__main__":
    check.run()
