"""What the jobs of these tests train on handwritten digits."""

import sys

import torch

from bireme.data import load_digits

_BATCH = 250


def network():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )


def optimizer_of(net):
    return torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)


def batches(rank, size):
    """Yield this worker's part of each batch, as many as every other worker's."""
    train, _ = load_digits().split(297)
    images, labels = torch.as_tensor(train.images), torch.as_tensor(train.labels)
    mine = _BATCH // size
    for _ in range(12):
        for start in range(rank * mine, len(images), _BATCH):
            yield images[start : start + mine], labels[start : start + mine]


def loss_of(net, images, labels):
    return torch.nn.functional.cross_entropy(net(images), labels)


def check(net, rank, goal=0.95):
    """Print how many of the held-out digits are read right; fail below the goal."""
    _, test = load_digits().split(297)
    with torch.no_grad():
        guessed = net(torch.as_tensor(test.images)).argmax(1)
    right = (guessed == torch.as_tensor(test.labels)).float().mean().item()
    sys.stdout.write(f"rank {rank}: {right:.3f} of the digits are right\n")
    sys.stdout.flush()
    assert right > goal, right
