"""What every process of bench_consistency.py's jobs runs; its one argument is a JSON object."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bireme
from bireme.data import load_digits, load_mnist

EVALUATE_EVERY = 8
NUM_HELD_OUT_DIGITS = 297

Data = tuple[Tensor, Tensor, Tensor, Tensor]


def load(name: str, folder: str) -> Data:
    """Return training images and labels, and held-out ones."""
    if name == "digits":
        train, test = load_digits().split(NUM_HELD_OUT_DIGITS)
    else:
        train, test = load_mnist(folder)
    found = []
    for part in (train, test):
        images = torch.from_numpy(part.images).float()
        images = images / 255 if name == "mnist" else images
        found += [images.view(len(images), 1, *images.shape[-2:]), torch.from_numpy(part.labels)]
    x, y, test_x, test_y = found
    if name == "mnist":
        test_x, test_y = test_x[::5], test_y[::5]
    return x, y, test_x, test_y


def make_net(name: str) -> nn.Module:
    if name == "digits":
        body = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        body += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*body, nn.Flatten(), nn.Linear(128, 10))
    body = [nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU()]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(256, 10))


def make_trainer(net: nn.Module, job: dict[str, Any]) -> bireme.Trainer:
    options = dict(job["options"])
    if "local" in options:
        options["local"] = bireme.LocalSteps(**options["local"])
    optimizer = torch.optim.SGD(net.parameters(), lr=job["lr"])
    return bireme.Trainer(net, optimizer, job["kind"], **options)


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    return (net(x).argmax(1) == y).float().mean().item()


def train(job: dict[str, Any], data: Data) -> dict[str, Any]:
    torch.manual_seed(job["seed"])
    net = make_net(job["data"])
    trainer = make_trainer(net, job)
    store = trainer.kvstore
    rank = store.rank
    x, y, test_x, test_y = data
    draws = torch.Generator().manual_seed(100 * job["seed"] + rank)
    pace_s = job["step_s"] * (job["slowness"] if rank == store.num_workers - 1 else 1)
    stop = Path(job["out"]) / "stop"
    curve, steps, num_late = [(0.0, accuracy(net, test_x, test_y))], 0, 0
    store.barrier()
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < job["budget_s"] and not stop.exists():
        step_begun_s = time.monotonic()
        if rank == 0 and steps % EVALUATE_EVERY == 0 and steps:
            curve.append((step_begun_s - begun_s, accuracy(net, test_x, test_y)))
            if curve[-1][1] >= job["target"]:
                stop.touch()
                break
        chosen = torch.randint(len(x), (job["batch_size"],), generator=draws)
        trainer.zero_grad()
        nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
        left_s = pace_s - (time.monotonic() - step_begun_s)
        num_late += left_s < 0
        time.sleep(max(0.0, left_s))
        trainer.step()
        steps += 1
    store.close()
    return {"curve": curve, "steps": steps, "late": num_late / max(1, steps)}


def main() -> None:
    bireme.run_role()
    torch.set_num_threads(1)
    job = json.loads(sys.argv[1])
    found = train(job, load(job["data"], job["folder"]))
    rank = int(os.environ["BIREME_RANK"])
    (Path(job["out"]) / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
