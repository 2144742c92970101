"""Tables in processes of their own: exact training, declared size and touched memory."""

import json
import os
from pathlib import Path

import torch
from tests.integration.programs.harness import Checks, refuses
from tests.nn.models import NUM_ROWS, STEPS, Net, batch, layer, loss_of, reference

import bireme
from bireme import OptimizerSpec
from bireme.errors import ConfigError
from bireme.nn import ShardedEmbedding

DECLARED, DIM = 100_000_000, 16
TOUCHED, STEPS_OF_TOUCHING = 300_000, 15

check = Checks()


@check
def training_is_that_of_one_process(job):
    store = job.store()
    made = layer(store)
    first = made.to_embedding().weight.detach()
    net = Net(made)
    make = lambda params: torch.optim.Adagrad(params, lr=0.3)  # noqa: E731
    trainer = bireme.Trainer(net, make(net.parameters()), kvstore=store)
    for step in range(STEPS):
        ids, label = batch(step, job.rank)
        trainer.zero_grad()
        loss = loss_of(net, ids, label)
        made.prefetch(batch(step + 1, job.rank)[0])
        loss.backward()
        trainer.step(num_samples=len(ids))
    expected = reference(first, make, job.size)
    rows = made.to_embedding().weight
    torch.testing.assert_close(rows, expected.embedding.weight, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(net.line.weight, expected.line.weight, rtol=1e-6, atol=1e-9)
    store.close()


@check
def disagreement_is_told_to_all(job):
    store = job.store()
    refuses(
        ConfigError,
        "another one on W[1]",
        lambda: ShardedEmbedding(NUM_ROWS, 3 + (job.rank == 1), kvstore=store, name="x"),
    )
    store.close()


@check
def memory_is_that_of_touched_rows(job):
    store, server = job.store(), int((job.out / "server.pid").read_text())
    spec = OptimizerSpec("adagrad", {"lr": 0.1})
    # The first calls of each kind compile and load libraries, here and on the server.
    warm = ShardedEmbedding(None, DIM, kvstore=store, name="warm", optimizer=spec)
    for _ in range(3):
        warm(torch.arange(20_000)).sum().backward()
        warm.step()
    warm.table.flush()
    made = ShardedEmbedding(DECLARED, DIM, kvstore=store, name="large", optimizer=spec)
    store.barrier()
    before = own_bytes(server)
    each = TOUCHED // STEPS_OF_TOUCHING // job.size
    generator = torch.Generator().manual_seed(5)
    chosen = torch.randperm(4 * TOUCHED, generator=generator)[:TOUCHED] * (DECLARED // 4 // TOUCHED)
    chosen = chosen[: STEPS_OF_TOUCHING * job.size * each]
    for part in chosen.view(STEPS_OF_TOUCHING, job.size, each)[:, job.rank]:
        made(part).sum().backward()
        made.step()
    made.table.flush()
    store.barrier()
    found = made.stats()
    found["server"] = own_bytes(server) - before
    (job.out / f"memory-{job.rank}.json").write_text(json.dumps(found))
    store.barrier()
    store.close()


def own_bytes(pid):
    """Return the resident memory of a process; over sockets it shares none with its peers."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    return 1024 * int(sizes["VmRSS"].split()[0])


if __name__ == "__main__":
    assert os.environ["BIREME_ROLE"]
    check.run()
