"""Trains on portions that follow (virtual) speeds, and says which samples each step used.

It writes into the folder ``OUT``. ``ACT=1:4`` lets worker 1 kill itself in step 4, once, with a
batch in hand.
"""

import json
import os
import signal
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bireme
from bireme.data import BalancedBatchSampler
from bireme.data.order import epoch_order

NUM_SAMPLES, BATCH, EPOCHS, SEED = 250, 24, 2, 7


class VirtualSampler(BalancedBatchSampler):
    """Tells virtual times, so that every run changes portions at the same steps."""

    steps = 0

    def word(self, seconds):
        """Worker 0 is the slow one at first, and then the fast one."""
        assert seconds >= 0
        self.steps += 1
        each = [4.0, 1.0, 2.0, 1.0] if self.steps < 12 else [0.5, 2.0, 1.0, 1.0]
        return super().word(each[self.part_index] * self.num_samples)


def make_net():
    """Return the same small network in double precision on every call."""
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    draws = torch.Generator().manual_seed(0)
    for param in net.parameters():
        param.data.copy_(0.3 * torch.randn(param.shape, generator=draws, dtype=torch.float64))
    return net


def make_optimizer(params):
    """Return an optimizer with state."""
    return torch.optim.Adam(params, lr=0.02, eps=1e-3)


def make_data():
    """Return inputs that begin with their own number, and targets."""
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(NUM_SAMPLES, 6, generator=draws, dtype=torch.float64)
    x[:, 0] = torch.arange(NUM_SAMPLES)
    return x, torch.randn(NUM_SAMPLES, 3, generator=draws, dtype=torch.float64)


def train_alone():
    """Return the parameters that plain torch reaches on the whole batches."""
    net, (x, y) = make_net(), make_data()
    optimizer = make_optimizer(net.parameters())
    for epoch in range(EPOCHS):
        order = epoch_order(NUM_SAMPLES, SEED, epoch, shuffle=True)
        for start in range(0, NUM_SAMPLES, BATCH):
            picked = torch.from_numpy(order[start : start + BATCH])
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x[picked, 1:]), y[picked]).backward()
            optimizer.step()
    return [param.detach() for param in net.parameters()]


def train_together(store, on_store=None, work_load_list="auto", folder=None, overlap=False):
    """Return the samples of each of this worker's steps, and the parameters that it reaches."""
    net = make_net()
    trainer = bireme.Trainer(
        net, make_optimizer(net.parameters()), store, update_on_kvstore=on_store, overlap=overlap
    )
    sampler = VirtualSampler(
        NUM_SAMPLES,
        BATCH,
        store.num_workers,
        store.rank,
        seed=SEED,
        work_load_list=work_load_list,
    )
    trainer.balance(sampler)
    loader = DataLoader(TensorDataset(*make_data()), batch_sampler=sampler)
    used = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            trainer.zero_grad()
            # In two pieces, as a script does that accumulates gradients.
            half = len(x) // 2
            if half:
                with trainer.accumulate():
                    add_gradients(net, x[:half], y[:half], len(x))
            add_gradients(net, x[half:], y[half:], len(x))
            if folder is not None:
                kill_once(folder, store.rank, len(used))
            trainer.step()
            used.append(x[:, 0].int().tolist())
            if folder is not None:
                note(folder / f"{store.rank}-{len(used) - 1}.json", used[-1])
    trainer.synchronize()
    return used, [param.detach().clone() for param in net.parameters()]


def add_gradients(net, x, y, num_samples):
    """Compute a piece of a portion of ``num_samples``."""
    loss = nn.functional.mse_loss(net(x[:, 1:]), y)
    (loss * len(x) / num_samples).backward()


def note(path, samples):
    """Say at once what a step used; a killed worker says nothing later, its replacement no more."""
    if not path.exists():
        path.write_text(json.dumps(samples))


def kill_once(folder, rank, step):
    """Do what ``ACT`` says, the first time."""
    who, when = os.environ.get("ACT", "-1:-1").split(":")
    mark = folder / "killed"
    if (rank, step) == (int(who), int(when)) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def main():
    """Train in a job of processes."""
    torch.set_num_threads(1)
    bireme.run_role()
    with bireme.kvstore.create(os.environ.get("KIND", "dist_sync")) as store:
        folder = Path(os.environ["OUT"])
        _, params = train_together(store, folder=folder, overlap="OVERLAP" in os.environ)
        torch.save(params, folder / f"{store.rank}.pt")
        store.barrier()


if __name__ == "__main__":
    main()
