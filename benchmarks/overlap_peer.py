"""One process of the job of bench_overlap.py: VGG-11 on synthetic data, with and without overlap.

Started in every role on the hosts of a `netns` cluster. Workers train two copies of the network by
turns, one with overlap and one without, and write what each step took to ``<folder>/<rank>.json``.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import bireme
from bireme import kvstore
from networks import vgg11


class Side:
    """A network and its trainer."""

    def __init__(self, *, overlap: bool, rank: int) -> None:
        torch.manual_seed(7)
        self.net = vgg11((3, 32, 32), 10)
        self.trainer = bireme.Trainer(
            self.net,
            torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9),
            "dist_sync",
            overlap=overlap,
        )

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Train one step."""
        self.trainer.zero_grad()
        nn.functional.cross_entropy(self.net(images), labels).backward()
        self.trainer.step()


def seconds(store: kvstore.KVStore, work: Callable[[], None]) -> float:
    """Return what ``work`` takes, when all workers begin together."""
    store.barrier()
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def measure(arguments: argparse.Namespace) -> None:
    """Train, and write the times down."""
    torch.set_num_threads(1)
    sides = {False: Side(overlap=False, rank=0), True: Side(overlap=True, rank=0)}
    store = sides[False].trainer.kvstore
    assert isinstance(store, kvstore.KVStore)
    source = torch.Generator().manual_seed(store.rank)
    images = torch.randn(arguments.batch, 3, 32, 32, generator=source)
    labels = torch.randint(0, 10, (arguments.batch,), generator=source)
    plain = vgg11((3, 32, 32), 10)

    def compute() -> None:
        for param in plain.parameters():
            param.grad = None
        nn.functional.cross_entropy(plain(images), labels).backward()

    keys = [f"bench/{name}" for name, _ in plain.named_parameters()]
    values = [param.detach().clone() for param in plain.parameters()]
    store.init(keys, values)

    def train(overlap: bool) -> None:
        for _ in range(arguments.steps):
            sides[overlap].step(images, labels)
        sides[overlap].trainer.synchronize()

    found: dict[str, list[float]] = {"off": [], "on": [], "compute": [], "exchange": []}
    for overlap in (False, True):
        train(overlap)
    for number in range(arguments.rounds):
        # The other one begins each round, so that none always runs in the other's wake.
        for overlap in sorted(sides, reverse=bool(number % 2)):
            spent_s = seconds(store, lambda overlap=overlap: train(overlap))
            found["on" if overlap else "off"].append(spent_s / arguments.steps)
        found["compute"].append(seconds(store, compute))
        found["exchange"].append(seconds(store, lambda: store.pushpull(keys, values)))
    same = all(map(torch.equal, sides[False].net.parameters(), sides[True].net.parameters()))
    path = Path(arguments.folder) / f"{store.rank}.json"
    path.write_text(json.dumps(found | {"same": same, "bytes": sum(v.nbytes for v in values)}))
    for side in sides.values():
        side.trainer.close()


def main() -> None:
    """Serve, or measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    bireme.run_role()
    measure(arguments)


if __name__ == "__main__":
    main()
