"""What every process of the optimizer tests runs: servers reach ``create`` as workers do.

A class that the script itself defines is ``__main__:Signed`` to everybody. ``KILL`` is the rank of
a server that is killed while it writes its second file of states.
"""

import os
import signal
import sys

import torch
from torch import nn

import bireme
from bireme.update import atomic

torch.set_num_threads(1)


class Signed(torch.optim.Optimizer):
    """Moves by the sign of a decaying sum of gradients."""

    def __init__(self, params, lr=0.1, decay=0.5):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                total = state.setdefault("total", torch.zeros_like(param))
                total.mul_(group["decay"]).add_(param.grad)
                param.sub_(total.sign(), alpha=group["lr"])


OPTIMIZERS = {
    "Signed": lambda params: Signed(params, lr=0.25),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.1, amsgrad=True, weight_decay=0.1),
    "Muon": lambda params: torch.optim.Muon(params, lr=0.1, weight_decay=0.1),
}
STEPS = 6


def make_net():
    net = nn.Sequential(nn.Linear(9, 300, bias=False), nn.Tanh(), nn.Linear(300, 2, bias=False))
    draws = torch.Generator().manual_seed(3)
    for param in net.parameters():
        param.data = torch.randn(param.shape, generator=draws, dtype=torch.float64) / 3
    return net


def train(stepper, net, part, numbers):
    schedule = torch.optim.lr_scheduler.ExponentialLR(stepper, 0.8)
    for number in numbers:
        x = torch.randn(8, 9, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        stepper.zero_grad()
        net(x[part]).square().mean().backward()
        stepper.step()
        schedule.step()


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def kill_while_writing():
    """Let this process be killed when it has written half of its second file."""
    fsync, calls = os.fsync, []

    def killing(file):
        calls.append(file)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(file)

    atomic.os.fsync = killing


def main():
    name, folder = os.environ["OPTIMIZER"], os.environ["STATES"]
    if (os.environ["BIREME_ROLE"], os.environ.get("BIREME_RANK")) == (
        "server",
        os.environ.get("KILL"),
    ):
        kill_while_writing()
    bireme.run_role()
    net, alone = make_net(), make_net()
    train(OPTIMIZERS[name](alone.parameters()), alone, slice(None), range(STEPS))
    with bireme.kvstore.create("dist_sync") as store:
        optimizer = OPTIMIZERS[name](net.parameters())
        trainer = bireme.Trainer(net, optimizer, store, update_on_kvstore=True)
        part = slice(4 * store.rank, 4 * store.rank + 4)
        train(trainer, net, part, range(STEPS))
        for ours, theirs in zip(net.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
        for _ in range(2):
            store.save_optimizer_states(f"{folder}/parts/")
            say("saved")
            train(trainer, net, part, range(2))
    say("done", store.rank)


if __name__ == "__main__":
    main()
