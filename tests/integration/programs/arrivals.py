"""What asynchronous stores promise, on every worker of a job."""

import torch
from tests.integration.programs.harness import Checks, adding, equal, refuses
from torch import nn

import bireme
from bireme.errors import ConfigError, StateError

RATE = 2

check = Checks()


@check
def pushes_are_refused_without_an_optimizer(job):
    store = job.store("dist_async")
    store.init(["d", "r"], [torch.ones(4, 2), torch.ones(4, 2).to_sparse(1)])
    for push in (
        lambda: store.push("d", torch.ones(4, 2)),
        lambda: store.pushpull("d", torch.ones(4, 2)),
        lambda: store.push("r", torch.ones(4, 2).to_sparse(1)),
    ):
        refuses(StateError, "call set_optimizer", push)
    equal(store.pull("d"), 1)
    store.set_optimizer(adding(1.0))
    store.push("d", torch.ones(4, 2))
    store.barrier()
    store.wait_all()
    store.barrier()
    equal(store.pull("d"), 1 + job.size)


@check
def every_push_is_applied_once(job):
    store = job.store("dist_async")
    store.set_optimizer(adding(RATE))
    store.init(["small", "big"], [torch.ones(3), torch.ones(1200, 1200)])
    for number in range(1 + 3 * job.rank):
        store.push(["small", "big"], [torch.full((3,), 1.0), torch.full((1200, 1200), 1.0)])
        seen = store.pull("small")[0].item()
        assert seen >= 1 + RATE * (number + 1), seen
    store.wait_all()
    store.barrier()
    total = sum(1 + 3 * rank for rank in range(job.size))
    equal(store.pull("small"), 1 + RATE * total)
    equal(store.pull("big"), 1 + RATE * total)


@check
def row_sparse_and_compressed_pushes(job):
    store = job.store("dist_async_device")
    store.set_optimizer(adding(RATE))
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init(["d", "r"], [torch.zeros(50, 4), torch.zeros(50, 4)])
    content = torch.full((1, 4), 1.0)
    for _ in range(3):
        store.push("d", torch.full((50, 4), 0.25))
        store.push("r", torch.sparse_coo_tensor([[job.rank]], content, (50, 4)))
    store.wait_all()
    store.barrier()
    equal(store.pull("d"), 0.5 * RATE * job.size)
    rows = store.row_sparse_pull("r", row_ids=torch.arange(50)).to_dense()
    equal(rows[: job.size], 3 * RATE)
    equal(rows[job.size :], 0)


@check
def trainers_update_on_servers_or_not_at_all(job):
    for sparse in (False, True):
        net = nn.Embedding(3, 1, sparse=sparse)
        nn.init.ones_(net.weight)
        refuses(
            ConfigError,
            "update_on_kvstore=False is not possible",
            lambda net=net: bireme.Trainer(
                net,
                torch.optim.SGD(net.parameters()),
                job.store("dist_async"),
                update_on_kvstore=False,
            ),
        )
        store = job.store("dist_async")
        trainer = bireme.Trainer(net, torch.optim.SGD(net.parameters(), lr=0.5), store)
        refuses(StateError, "updates as it merges", trainer.allreduce_grads)
        for _ in range(1 + job.rank):
            trainer.zero_grad()
            net(torch.tensor([0, 0, 1])).sum().backward()
            trainer.step()
        store.wait_all()
        store.barrier()
        steps = sum(1 + rank for rank in range(job.size))
        equal(store.pull("trainer0/weight"), torch.tensor([[1.0 - steps], [1 - steps / 2], [1.0]]))


@check
def states_of_asynchronous_stores(job):
    store = job.store("dist_async")
    store.set_optimizer(bireme.OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
    store.init("w", torch.zeros(1000, 1000))
    store.push("w", torch.full((1000, 1000), 1.0))
    store.save_optimizer_states(str(job.out / "async-states"))
    store.barrier()
    kept = store.pull("w")
    store.barrier()
    store.push("w", torch.full((1000, 1000), 1.0))
    store.load_optimizer_states(str(job.out / "async-states"))
    store.overwrite("w", kept)
    equal(store.pull("w"), kept)
    momentum = store.optimizer_states()["w"]["momentum_buffer"]
    assert momentum.shape == (1000, 1000)
    # 1, then half of it and 1, and so on: in the order in which the pushes came.
    equal(momentum, sum(0.5**number for number in range(job.size)))


@check
def late_gradients_are_compensated(job):
    strength, lr, momentum = 0.3, 0.1, 0.5
    for kind, options in (("dist_async", {}), ("dist_bounded_device", {"staleness": 2})):
        store = bireme.kvstore.create(kind, delay_compensation=strength, **options)
        spec = bireme.OptimizerSpec("sgd", {"lr": lr, "momentum": momentum}, rescale_grad=0.5)
        store.set_optimizer(spec)
        start = torch.linspace(-1, 1, 600, dtype=torch.float64).view(3, 200)
        store.init("w", start)
        store.barrier()
        # Everyone's reads and pushes in turns, and the same by hand.
        value, velocity = start.clone(), torch.zeros_like(start)
        read = [start.clone() for _ in range(job.size)]
        mine = store.pull("w")
        job.keeper.barrier()
        for turn in range(4 * job.size):
            rank = turn % job.size
            gradient = torch.sin(read[rank] * (rank + 2))
            scaled = 0.5 * gradient
            scaled = scaled + strength * scaled * scaled * (value - read[rank])
            velocity = momentum * velocity + scaled
            value = value - lr * velocity
            if job.rank == rank:
                store.push("w", torch.sin(mine * (rank + 2)))
                mine = store.pull("w")
                torch.testing.assert_close(mine, value, rtol=1e-12, atol=1e-12)
            read[rank] = value
            job.keeper.barrier()
        store.close()


if __name__ == "__main__":
    check.run()
