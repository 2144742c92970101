"""Local steps computed straight, for all workers in one place: what the tests compare with.

Everything is written out in plain torch, so that it shares no line with what it checks.
"""

import torch
from tests.seeding import seeded
from torch import nn

NUM_FEATURES = 6


def make_net(dtype=torch.float64):
    with seeded(7):
        return nn.Sequential(nn.Linear(NUM_FEATURES, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype)


def samples(rank):
    """Unequal on purpose."""
    return 2 * rank + 1


def batch(rank, step, dtype=torch.float64):
    random = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(samples(rank), NUM_FEATURES, generator=random, dtype=torch.float64)
    y = torch.randn(samples(rank), 2, generator=random, dtype=torch.float64)
    return x.to(dtype), y.to(dtype)


def loss_of(net, rank, step):
    x, y = batch(rank, step, next(net.parameters()).dtype)
    return nn.functional.mse_loss(net(x), y)


class Worker:
    def __init__(self, rank, make_optimizer, make_scheduler):
        self.rank = rank
        self.net = make_net()
        self.params = list(self.net.parameters())
        self.optimizer = make_optimizer(self.net)
        self.scheduler = make_scheduler(self.optimizer)

    def step(self, number):
        self.optimizer.zero_grad()
        loss_of(self.net, self.rank, number).backward()
        self.optimizer.step()
        self.scheduler.step()


def fragments_of(params, count):
    """Each parameter goes to the part that has least, the first of equals."""
    parts, sizes = [[] for _ in range(count)], [0] * count
    for index, param in enumerate(params):
        least = min(range(count), key=lambda part: (sizes[part], part))
        parts[least].append(index)
        sizes[least] += param.numel()
    return parts


class Outer:
    """The servers' side of one parameter: SGD by hand."""

    def __init__(self, value, lr, momentum, nesterov):
        self.value, self.lr, self.momentum, self.nesterov = value, lr, momentum, nesterov
        self.velocity = None

    def apply(self, gradient):
        direction = gradient
        if self.momentum:
            previous = self.velocity
            self.velocity = (
                gradient.clone() if previous is None else self.momentum * previous + gradient
            )
            direction = self.velocity
            if self.nesterov:
                direction = gradient + self.momentum * self.velocity
        self.value = self.value - self.lr * direction


class Rounds:
    """All workers in step, and the servers."""

    def __init__(self, num_workers, make_optimizer, make_scheduler, *, outer, lr, momentum, kept):
        self.workers = [Worker(rank, make_optimizer, make_scheduler) for rank in range(num_workers)]
        self.weights = [samples(rank) for rank in range(num_workers)]
        self.elastic, self.kept = outer == "elastic", kept
        self.pull = lr / num_workers
        self.central = [
            Outer(p.detach().clone(), lr, momentum, outer == "nesterov")
            for p in self.workers[0].params
        ]

    def leave(self, indices):
        for index in indices:
            center = self.central[index]
            moved = [center.value - worker.params[index] for worker in self.workers]
            for worker, difference in zip(self.workers, moved, strict=True):
                worker.params[index].add_(difference * (self.pull if self.elastic else 0.0))
            total = sum(w * difference for w, difference in zip(self.weights, moved, strict=True))
            center.apply(total / sum(self.weights))
        return {index: self.central[index].value for index in indices}

    def arrive(self, values):
        for worker in self.workers:
            for index, value in values.items():
                own = worker.params[index]
                if not self.elastic:
                    own.copy_(self.kept * own + (1 - self.kept) * value)


def leaves(part, fragments, number, every):
    first = (part + 1) * every // fragments
    return number in range(first, number + 1, every)


@torch.no_grad()
def in_rounds(
    num_workers,
    num_steps,
    make_optimizer,
    make_scheduler,
    *,
    every,
    outer,
    lr,
    momentum=0.0,
    fragments=1,
    delay=0,
    kept=0.0,
):
    """Return every worker's parameters when all meet at every exchange."""
    server = {"outer": outer, "lr": lr, "momentum": momentum}
    job = Rounds(num_workers, make_optimizer, make_scheduler, **server, kept=kept)
    parts = fragments_of(job.workers[0].params, fragments)
    under_way = {}
    for number in range(1, num_steps + 1):
        for worker in job.workers:
            with torch.enable_grad():
                worker.step(number)
        for part, indices in enumerate(parts):
            job.arrive(under_way.pop((part, number), {}))
            if leaves(part, fragments, number, every):
                under_way[part, number + delay] = job.leave(indices)
                job.arrive(under_way.pop((part, number), {}))
    return [[param.detach().clone() for param in worker.params] for worker in job.workers]


@torch.no_grad()
def in_turns(num_workers, turns, make_optimizer, make_scheduler, *, every, outer, lr, momentum=0.0):
    """Return every worker's parameters when they take ``turns``, an exchange each, one by one."""
    workers = [Worker(rank, make_optimizer, make_scheduler) for rank in range(num_workers)]
    central = [
        Outer(p.detach().clone(), lr, momentum, outer == "nesterov") for p in workers[0].params
    ]
    known = [[p.detach().clone() for p in worker.params] for worker in workers]
    done = [0] * num_workers
    for rank in turns:
        worker = workers[rank]
        for _ in range(every):
            done[rank] += 1
            with torch.enable_grad():
                worker.step(done[rank])
        for index, param in enumerate(worker.params):
            center = central[index]
            origin = center.value if outer == "elastic" else known[rank][index]
            difference = origin - param
            if outer == "elastic":
                param.add_(difference * (lr / num_workers))
            center.apply(difference / num_workers)
            if outer != "elastic":
                param.copy_(center.value)
                known[rank][index] = center.value
    return [[param.detach().clone() for param in worker.params] for worker in workers]
