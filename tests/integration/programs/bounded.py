"""What stores of bounded staleness promise, on every worker of a job."""

import time

import torch
from tests.integration.programs.harness import Checks, adding, equal
from torch import nn

import bireme

STEPS = 12

check = Checks()


def steps_of(job, trainer, net, num_steps):
    """Train on samples that differ by rank and step, unequal in number."""
    random = torch.Generator().manual_seed(job.rank)
    for _ in range(num_steps):
        count = job.rank + 1
        x, y = torch.randn(count, 7, generator=random), torch.randn(count, 3, generator=random)
        trainer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        trainer.step(num_samples=count)


@check
def a_bound_of_0_has_the_bits_of_sync(job):
    found = []
    for kind, options in (("dist_sync", {}), ("dist_bounded", {"staleness": 0})):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(7, 400), nn.Tanh(), nn.Linear(400, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        trainer = bireme.Trainer(net, optimizer, kind, **options)
        assert trainer.kvstore.meets_in_rounds
        steps_of(job, trainer, net, STEPS)
        found.append([param.detach().clone() for param in net.parameters()])
        trainer.kvstore.close()
    for one, other in zip(*found, strict=True):
        equal(one, other)


@check
def nobody_reads_what_is_older_than_the_bound(job):
    for staleness, kind in ((1, "dist_bounded"), (3, "dist_bounded_device")):
        store = bireme.kvstore.create(kind, staleness=staleness)
        assert store.staleness == staleness
        assert not store.meets_in_rounds
        store.set_optimizer(adding(1.0))
        store.init("clocks", torch.zeros(job.size))
        mine, clocks = torch.zeros(job.size), torch.zeros(job.size)
        mine[job.rank] = 1
        for step in range(STEPS):
            before = clocks
            clocks = store.pull("clocks")
            assert clocks[job.rank] == step, clocks
            assert clocks.min() >= step - staleness, (step, clocks)
            assert (clocks >= before).all()
            # The last worker computes for longer than the others.
            time.sleep(0.02 * (job.rank == job.size - 1))
            if step % 2:
                store.push("clocks", mine)
            else:
                clocks = mine.clone()
                store.pushpull("clocks", mine, clocks)
                assert clocks.min() >= step + 1 - staleness, (step, clocks)
        store.wait_all()
        store.barrier()
        equal(store.pull("clocks"), STEPS)


@check
def a_worker_without_a_gradient_holds_nobody_up(job):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList(nn.Linear(2, 1, bias=False) for _ in range(2))
            for branch in self.branches:
                nn.init.ones_(branch.weight)

        def forward(self, x):
            return self.branches[job.rank % 2](x)

    net = Branches()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    trainer = bireme.Trainer(net, optimizer, "dist_bounded", staleness=1)
    for _ in range(5):
        trainer.zero_grad()
        net(torch.ones(1, 2)).sum().backward()
        trainer.step()
    trainer.kvstore.barrier()
    for number in range(2):
        ranks = len(range(number, job.size, 2))
        equal(trainer.kvstore.pull(f"trainer0/branches.{number}.weight"), 1 - 0.5 * 5 * ranks)


@check
def a_step_that_overflows_holds_nobody_up(job):
    net = nn.Linear(2, 1, bias=False)
    nn.init.ones_(net.weight)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5, weight_decay=0.1)
    trainer = bireme.Trainer(net, optimizer, "dist_bounded", staleness=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    overflows = job.rank == 1
    for _ in range(8):
        trainer.zero_grad()
        scaler.scale(0 * net(torch.ones(1, 2)).sum()).backward()
        if overflows:
            net.weight.grad.fill_(float("inf"))
        scaler.step(trainer)
        scaler.update()
    trainer.kvstore.barrier()
    # The others' pushes only, by weight decay and momentum; none of its own.
    value, velocity = 1.0, None
    for _ in range(8 * (job.size - 1)):
        gradient = 0.1 * value
        velocity = gradient if velocity is None else 0.5 * velocity + gradient
        value -= 0.5 * velocity
    found = trainer.kvstore.pull("trainer0/weight")
    torch.testing.assert_close(found, torch.full_like(found, value))


@check
def the_job_names_the_staleness(job):
    with bireme.kvstore.create("dist_bounded") as store:
        assert store.staleness == 3, store.staleness


if __name__ == "__main__":
    check.run()
