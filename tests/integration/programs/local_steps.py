"""Local steps against their reference, on every worker of a job."""

import torch
from tests.integration.programs.harness import Checks
from tests.train import local_reference as reference

import bireme

STEPS = 13

check = Checks()


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=0.05)


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)


def halving(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)


def train(job, make_optimizer, steps, kind="dist_local", num_steps=STEPS):
    net = reference.make_net()
    trainer = bireme.Trainer(net, make_optimizer(net), kind, local=steps)
    scheduler = halving(trainer)
    for number in range(1, num_steps + 1):
        trainer.zero_grad()
        reference.loss_of(net, job.rank, number).backward()
        trainer.step(num_samples=reference.samples(job.rank))
        scheduler.step()
    return net, trainer


def close_to(net, expected):
    for param, wanted in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(param.detach(), wanted, rtol=1e-9, atol=1e-9)


def compare(job, make_optimizer, steps, kind="dist_local", **straight):
    net, trainer = train(job, make_optimizer, steps, kind)
    every = reference.in_rounds(
        job.size, STEPS, make_optimizer, halving, every=steps.every, **straight
    )
    close_to(net, every[job.rank])
    trainer.kvstore.close()


@check
def plain_averages(job):
    steps = bireme.LocalSteps(every=4)
    compare(job, adam, steps, outer="average", lr=1.0)
    compare(job, sgd, steps, "dist_local_device", outer="average", lr=1.0)


@check
def averages_with_outer_momentum(job):
    steps = bireme.LocalSteps(every=3, lr=0.9, momentum=0.3)
    compare(job, sgd, steps, outer="average", lr=0.9, momentum=0.3)


@check
def diloco(job):
    steps = bireme.LocalSteps(every=3, outer="nesterov")
    compare(job, adam, steps, outer="nesterov", lr=0.7, momentum=0.9)


@check
def elastic_averaging(job):
    steps = bireme.LocalSteps(every=2, outer="elastic", lr=0.8)
    compare(job, sgd, steps, outer="elastic", lr=0.8)


@check
def streaming_fragments(job):
    options = {"outer": "nesterov", "lr": 0.6, "momentum": 0.8, "fragments": 3}
    steps = bireme.LocalSteps(every=5, delay=2, **options)
    compare(job, adam, steps, **options, delay=2, kept=0.5)
    steps = bireme.LocalSteps(every=5, delay=4, mixing=0.25, **options)
    compare(job, sgd, steps, **options, delay=4, kept=0.25)
    steps = bireme.LocalSteps(every=5, **options)
    compare(job, sgd, steps, **options)
    options = {"outer": "elastic", "lr": 0.6, "fragments": 2}
    compare(job, sgd, bireme.LocalSteps(every=4, delay=1, **options), **options, delay=1)


@check
def exchanges_that_nobody_waits_for(job):
    turns = [rank for _ in range(3) for rank in (*range(job.size), 0)]
    for outer, lr, momentum in (("elastic", 0.9, 0.0), ("nesterov", 0.7, 0.9)):
        for staleness in (None, 4):
            steps = bireme.LocalSteps(every=2, outer=outer, staleness=staleness)
            expected = reference.in_turns(
                job.size, turns, sgd, halving, every=2, outer=outer, lr=lr, momentum=momentum
            )
            net = reference.make_net()
            trainer = bireme.Trainer(net, sgd(net), "dist_local", local=steps)
            scheduler, done = halving(trainer), 0
            trainer.kvstore.barrier()
            for rank in turns:
                for _ in range(2 * (rank == job.rank)):
                    done += 1
                    trainer.zero_grad()
                    reference.loss_of(net, job.rank, done).backward()
                    trainer.step()
                    scheduler.step()
                job.keeper.barrier()
            close_to(net, expected[job.rank])
            trainer.sync_parameters()
            for param in net.parameters():
                total = job.keeper.sum_over_workers("param", param.detach())
                torch.testing.assert_close(total, job.size * param.detach())
            trainer.kvstore.close()


@check
def all_have_the_same_after_a_synchronisation(job):
    for outer in ("average", "nesterov", "elastic"):
        steps = bireme.LocalSteps(every=5, outer=outer, fragments=2, delay=1)
        net, trainer = train(job, adam, steps, num_steps=6)
        trainer.sync_parameters()
        for param in net.parameters():
            mine = param.detach()
            total = job.keeper.sum_over_workers("same", mine)
            torch.testing.assert_close(total, job.size * mine, rtol=1e-12, atol=1e-12)
        trainer.kvstore.close()


@check
def differences_may_travel_compressed(job):
    net = reference.make_net(torch.float32)
    trainer = bireme.Trainer(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05),
        "dist_local",
        compression={"type": "fp16"},
        local=bireme.LocalSteps(every=2),
    )
    before = reference.loss_of(net, 0, 0).item()
    for _ in range(20):
        trainer.zero_grad()
        reference.loss_of(net, 0, 0).backward()
        trainer.step()
    assert reference.loss_of(net, 0, 0).item() < before / 2
    trainer.kvstore.close()


if __name__ == "__main__":
    check.run()
