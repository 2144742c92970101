"""Trains the same network with and without overlap, by turns, and writes every parameter.

The arguments: a folder, then ``1`` if the optimizer runs on the servers.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import bireme

NUM_STEPS = 5


def make_net():
    """Return a network with large and small parameters, tied ones, and a branch."""
    torch.manual_seed(3)
    first, last = nn.Linear(64, 600), nn.Linear(64, 600)
    last.weight = first.weight
    return nn.ModuleDict(
        {"first": first, "deep": nn.Linear(600, 600), "back": nn.Linear(600, 64), "last": last}
    )


def loss_of(net, rank, step, part=0):
    """Return the loss of a worker's own batch."""
    source = torch.Generator().manual_seed(1000 * rank + 10 * step + part)
    x = torch.randn(8, 64, generator=source)
    hidden = torch.relu(net["first"](x))
    if (rank + step) % 2:
        hidden = torch.relu(net["deep"](hidden))
    return net["last"](net["back"](hidden)).square().mean()


def train(net, trainer, rank):
    """Train with accumulation, schedules and evaluation in between; return all parameters."""
    schedule = torch.optim.lr_scheduler.StepLR(trainer, 2, 0.5)
    seen = []
    for step in range(NUM_STEPS):
        trainer.zero_grad()
        if step == 2:
            with trainer.accumulate():
                loss_of(net, rank, step, 1).backward()
        if step == 3:
            trainer.begin(1 + rank)
        loss_of(net, rank, step).backward()
        trainer.step()
        schedule.step()
        with torch.no_grad():
            seen.append(loss_of(net, 0, 50))
    return seen + [value.clone() for value in net.state_dict().values()]


def main():
    """Join the job, train, and write what came out."""
    torch.set_num_threads(1)
    folder, on_store = Path(sys.argv[1]), sys.argv[2] == "1"
    bireme.run_role()
    with bireme.kvstore.create("dist_sync") as keeper:
        results = []
        for overlap in (False, True, True, False):
            with bireme.kvstore.create("dist_sync") as store:
                net = make_net()
                optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
                trainer = bireme.Trainer(
                    net, optimizer, store, update_on_kvstore=on_store, overlap=overlap
                )
                results.append(train(net, trainer, keeper.rank))
                trainer.close()
        torch.save(results, folder / f"{keeper.rank}.pt")
        keeper.barrier()


if __name__ == "__main__":
    main()
