"""Horovod's way: one script, any number of processes, gradients averaged by hooks.

    python examples/horovod_mnist.py
    bireme run -np 2 python examples/horovod_mnist.py
    bireme run -np 2 python examples/horovod_mnist.py --data-dir ../shared/data/mnist --epochs 1

Trains on scikit-learn's 1,797 handwritten digits, or on MNIST where ``--data-dir`` holds its files.
Written for Horovod, it changes in one line: ``import horovod.torch as hvd``.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import bireme.horovod.torch as hvd
from bireme.data import LabelledImages, load_digits, load_mnist


def as_dataset(data: LabelledImages, scale: float) -> TensorDataset:
    images = torch.as_tensor(data.images).float() / scale
    return TensorDataset(images, torch.as_tensor(data.labels).long())


def load(data_dir: str | None) -> tuple[TensorDataset, TensorDataset]:
    train, test = load_digits().split(297) if data_dir is None else load_mnist(data_dir)
    scale = float(train.images.max())
    return as_dataset(train, scale), as_dataset(test, scale)


def make_net() -> nn.Module:
    return nn.Sequential(
        nn.LazyConv2d(16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(10),
    )


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """Return the share of right answers; each process looks at its part."""
    mine = range(hvd.rank(), len(data), hvd.size())
    images, labels = data[list(mine)]
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    return float(hvd.allreduce(right.float(), name="right", op=hvd.Sum)) / len(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=None, help="folder with MNIST's four files")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="of all processes together")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    hvd.init()
    torch.manual_seed(0)
    train, test = load(args.data_dir)
    model = make_net()
    model(train[0][0][None])
    sampler = DistributedSampler(train, hvd.size(), hvd.rank())
    loader = DataLoader(train, max(1, args.batch_size // hvd.size()), sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        share = accuracy(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: {share:.2%} of the held-out digits right")


if __name__ == "__main__":
    main()
