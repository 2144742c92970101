"""Trains a small network on unequal shares, and writes the parameters of every worker."""

import random
import sys
import time
from pathlib import Path

import torch
from torch import nn

import bireme

NUM_STEPS = 6


def make_net(seed):
    """Return a network of a few layers in double precision, on which order of sums matters."""
    net = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 3)).double()
    # Not torch's own generator, which threads share.
    draws = torch.Generator().manual_seed(seed)
    for param in net.parameters():
        param.data.copy_(0.3 * torch.randn(param.shape, generator=draws, dtype=torch.float64))
    return net


def make_optimizer(params):
    """Return an optimizer with state."""
    return torch.optim.Adam(params, lr=0.05, eps=1e-3, weight_decay=1e-3)


def batches(size):
    """Return the same batches of ``size`` samples on every call."""
    draws = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 5, generator=draws, dtype=torch.float64),
            torch.randn(size, 3, generator=draws, dtype=torch.float64),
        )
        for _ in range(NUM_STEPS)
    ]


def train_alone(size):
    """Return the parameters that plain torch reaches on whole batches."""
    net = make_net(0)
    optimizer = make_optimizer(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for x, y in batches(size):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        scheduler.step()
    return [param.detach() for param in net.parameters()]


def train_together(store, shares, on_store):
    """Return the parameters that this worker reaches on its part of each batch."""
    rank, jitter = store.rank, random.Random(time.time_ns())
    # Every worker begins elsewhere: rank 0's weights count.
    net = make_net(rank)
    trainer = bireme.Trainer(
        net, make_optimizer(net.parameters()), store, update_on_kvstore=on_store
    )
    scheduler = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 2, 0.5)
    first = sum(shares[:rank])
    end = first + shares[rank]
    for x, y in batches(sum(shares)):
        trainer.zero_grad()
        if end > first:
            nn.functional.mse_loss(net(x[first:end]), y[first:end]).backward()
        time.sleep(0.004 * jitter.random())
        trainer.step(num_samples=end - first)
        scheduler.step()
    return [param.detach().clone() for param in net.parameters()]


def main():
    """Train with the optimizer on the servers and here, each twice."""
    torch.set_num_threads(1)
    out, shares = Path(sys.argv[1]), [int(each) for each in sys.argv[2].split(",")]
    bireme.run_role()
    with bireme.kvstore.create("dist_sync") as keeper:
        results = [
            train_together(bireme.kvstore.create(kind), shares, on_store)
            for on_store in (True, False)
            for kind in ("dist_sync", "dist_sync_device")
        ]
        torch.save(results, out / f"{keeper.rank}.pt")
        keeper.barrier()


if __name__ == "__main__":
    main()
