"""Quickstart: train a small conv net on 1,797 handwritten digits, on two devices at once.

    python examples/quickstart.py            # a few seconds on two CPU cores
    python examples/quickstart.py --help

Both "devices" are CPU contexts here, so it runs anywhere. The first one gets three quarters of
every batch, as a faster device would, and the result is the same as on one device.
"""

import argparse
import os
import sys

import torch
from rich.console import Console
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

import bireme
from bireme.types import parse_contexts

HELD_OUT = 359  # of 1,797
GOAL = 0.96


class DigitNet(nn.Sequential):
    """Three small convolutions for 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 2 * 2, 10),
        )


def load_data(batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Return loaders of the training digits and of a fixed fifth that is held out."""
    training, held_out = bireme.data.load_digits().split(HELD_OUT)
    return as_loader(training, batch_size, shuffle=True), as_loader(held_out, HELD_OUT)


def as_loader(
    digits: bireme.data.LabelledImages, batch_size: int, shuffle: bool = False
) -> DataLoader:
    images, labels = torch.from_numpy(digits.images), torch.from_numpy(digits.labels)
    return DataLoader(TensorDataset(images, labels), batch_size, shuffle=shuffle)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Train a small conv net on real handwritten digits, on several devices.",
        epilog="example: python examples/quickstart.py --gpus 0,1 --kv-store device",
    )
    parser.add_argument("--gpus", help="GPUs to use, such as 0,1 (default: two CPU contexts)")
    parser.add_argument("--kv-store", default="device", help="store type (default: device)")
    parser.add_argument("--num-epochs", type=int, default=10, help="passes over the data")
    parser.add_argument("--batch-size", type=int, default=64, help="samples per step, all devices")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    args = parser.parse_args(argv)

    torch.manual_seed(0)
    contexts = parse_contexts(args.gpus, num_cpus=2)
    train, held_out = load_data(args.batch_size)

    # Four lines are all that is different from a script for one device.
    module = bireme.Module(
        DigitNet(),
        loss=nn.functional.cross_entropy,
        context=contexts,
        work_load_list=[3, 1] if len(contexts) == 2 else None,
    )

    console = Console(highlight=False)
    console.print(f"{len(train.dataset)} digits to train on, {len(held_out.dataset)} held out")
    module.fit(
        train,
        eval_data=held_out,
        num_epoch=args.num_epochs,
        kvstore=args.kv_store,
        optimizer="sgd",
        optimizer_params={"lr": args.lr, "momentum": 0.9, "weight_decay": 1e-4},
        lr_scheduler=lambda trainer: CosineAnnealingLR(trainer, args.num_epochs),
        batch_end_callback=bireme.callbacks.ProgressBar(console),
        epoch_end_callback=bireme.callbacks.EpochTable(console),
    )

    accuracy = module.score(held_out, "acc")["accuracy"]
    if accuracy < GOAL:
        console.print(f"\n[red]{accuracy:.2%} of the held-out digits right; {GOAL:.0%} expected[/]")
        return 1
    console.print(f"\n[green]{accuracy:.2%} of the held-out digits right.[/]", end=" ")
    python = min(os.path.relpath(sys.executable), sys.executable, key=len)
    console.print(f"Next: [bold]{python} examples/train_mnist.py --help[/]", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
