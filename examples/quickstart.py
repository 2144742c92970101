"""Quickstart: train a small conv net on 1,797 handwritten digits, on two devices at once.

    python examples/quickstart.py            # a few seconds on two CPU cores
    bireme run -n 2 -s 2 python examples/quickstart.py --kv-store dist_sync
    python examples/quickstart.py --help

The first line trains on two "devices" of one process. Both are CPU contexts, so it runs anywhere;
the first one gets three quarters of every batch, as a faster device would. The second line trains
the same net on a cluster: a scheduler, two servers and two workers, which run this very script.
Either way the result is the same as on one device.
"""

import argparse
import os
import sys

import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset

import bireme
from bireme.types import parse_contexts

HELD_OUT = 359  # of 1,797
GOAL = 0.96
SAME = 1e-6


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


def load_data(batch_size: int, store: bireme.kvstore.KVStoreBase) -> tuple[DataLoader, DataLoader]:
    """Return loaders of this worker's training digits and of a fixed fifth that is held out."""
    training, held_out = bireme.data.load_digits().split(HELD_OUT)
    shard = bireme.data.ShardSampler(len(training), store.num_workers, store.rank)
    train = DataLoader(as_dataset(training), batch_size // store.num_workers, sampler=shard)
    return train, DataLoader(as_dataset(held_out), HELD_OUT)


def as_dataset(digits: bireme.data.LabelledImages) -> TensorDataset:
    # float64, so that rounding does not blur the comparison of one process and a cluster.
    return TensorDataset(torch.from_numpy(digits.images).double(), torch.from_numpy(digits.labels))


def train(args: argparse.Namespace, store: bireme.kvstore.KVStoreBase) -> int:
    torch.manual_seed(0)
    console = Console(highlight=False, quiet=store.rank > 0)
    contexts = parse_contexts(args.gpus, num_cpus=2 if store.num_workers == 1 else 1)
    train, held_out = load_data(args.batch_size, store)
    console.print(
        f"{sum(train.sampler.sizes)} digits to train on, {HELD_OUT} held out, {store.type} store"
    )

    # Four lines are all that is different from a script for one device.
    module = bireme.Module(
        DigitNet().double(),
        loss=nn.functional.cross_entropy,
        context=contexts,
        work_load_list=[3, 1] if len(contexts) == 2 else None,
    )
    module.fit(
        train,
        eval_data=held_out,
        num_epoch=args.num_epochs,
        kvstore=store,
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
    return report(args, console, module.net.state_dict())


def report(args: argparse.Namespace, console: Console, net: dict[str, torch.Tensor]) -> int:
    if args.save:
        save_file(net, args.save)
        console.print(f"Saved to {args.save}.")
        return 0
    if args.compare:
        one = load_file(args.compare)
        apart = max(float((net[name] - value).abs().max()) for name, value in one.items())
        console.print(f"Greatest difference from the parameters of one process: {apart:.1e}.")
        if apart > SAME:
            return 1
    python = min(os.path.relpath(sys.executable), sys.executable, key=len)
    console.print(f"Next: [bold]{python} examples/train_mnist.py --help[/]", soft_wrap=True)
    return 0


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
    parser.add_argument("--save", metavar="FILE", help="write the trained parameters there")
    parser.add_argument("--compare", metavar="FILE", help="compare with parameters saved before")
    args = parser.parse_args(argv)
    if args.num_epochs < 1:
        parser.error(f"--num-epochs must be at least 1, got {args.num_epochs}")
    if args.save and not os.path.isdir(os.path.dirname(args.save) or "."):
        parser.error(f"--save {args.save}: there is no such folder")
    if args.compare and not os.path.isfile(args.compare):
        parser.error(f"--compare {args.compare}: there is no such file")
    try:
        # In a server or the scheduler of a cluster, create() serves until the job ends.
        with bireme.kvstore.create(args.kv_store) as store:
            return train(args, store)
    except bireme.errors.BiremeError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
