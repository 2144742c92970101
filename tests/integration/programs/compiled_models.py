"""Trains compiled models with SyncBatchNorm; the parameters are those of one process.

``compiled_models.py BACKEND FOLDER``, by a launcher.
"""

import copy
import sys
from pathlib import Path

import torch
from torch import nn

import bireme.horovod.torch as hvd

ROWS, STEPS = 12, 3


class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 6), norm, nn.Linear(6, 2)
        self.double()

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(ROWS, 4, generator=generator, dtype=torch.float64)


def portion():
    """Return this rank's rows: the first has most."""
    first = ROWS - 2 * (hvd.size() - 1)
    begin = 0 if hvd.rank() == 0 else first + 2 * (hvd.rank() - 1)
    return slice(begin, begin + (first if hvd.rank() == 0 else 2))


def train(model, called, optimizer, rows):
    for step in range(STEPS):
        optimizer.zero_grad()
        called(batch(step)[rows]).pow(2).sum().div(ROWS).backward()
        optimizer.step()
    return [value.detach().clone() for value in model.state_dict().values()]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def both_ways(x):
    handle = hvd.allreduce_async_(x * 3, op=hvd.Sum, name="in place")
    gathered = hvd.allgather_async(x, name="gathered")
    assert hvd.synchronize(gathered).tolist() == [1.0] * 3 * hvd.size()
    return hvd.synchronize(handle) + 1


def main(backend, folder):
    torch.set_num_threads(1)
    hvd.init()
    expected_model = Net(nn.BatchNorm1d(6))
    expected = train(expected_model, expected_model, sgd(expected_model), slice(None))

    model = Net(hvd.SyncBatchNorm(6))
    again = copy.deepcopy(model)
    for each, in_place in ((model, False), (again, True)):
        optimizer = hvd.DistributedOptimizer(sgd(each), each.named_parameters(), op=hvd.Sum)
        if in_place:
            each.compile(backend=backend)
        called = each if in_place else torch.compile(each, backend=backend)
        found = train(each, called, optimizer, portion())
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)
    # A function that reduces is left in pieces by the compiler, and works.
    reduce = torch.compile(lambda x: hvd.allreduce(x * 2, op=hvd.Sum, name="in a function") + 1)
    assert reduce(torch.ones(3)).tolist() == [2.0 * hvd.size() + 1] * 3
    # Likewise one that submits, computes and waits, as often as it is called.
    both = torch.compile(both_ways, backend=backend)
    for _ in range(4):
        assert both(torch.ones(3)).tolist() == [3.0 * hvd.size() + 1] * 3
    Path(folder, f"fine-{hvd.rank()}").touch()
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
