"""What both sides of bench_end_to_end.py train: models of CIFAR size on synthetic CIFAR-10."""

import json
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

MODELS = ("vgg11", "resnet18")
LR = 0.01
NUM_BATCHES = 4


def vgg11() -> nn.Module:
    """Return VGG-11 with batch normalisation for 32 x 32 images: 9.2 million parameters."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        layers.append(nn.ReLU(inplace=True))
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


class Block(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """Return ResNet-18 for 32 x 32 images: 11.2 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)]
    layers.append(nn.ReLU(inplace=True))
    inputs = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, width, stride), Block(width, width, 1)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def make(name: str) -> nn.Module:
    """Return a model with the same first weights on every rank."""
    torch.manual_seed(20)
    return {"vgg11": vgg11, "resnet18": resnet18}[name]()


def batches(rank: int, batch_size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return a rank's batches of images in CIFAR-10's shape; their class shifts their mean."""
    generator = torch.Generator().manual_seed(1000 + rank)
    found = []
    for _ in range(NUM_BATCHES):
        labels = torch.randint(10, (batch_size,), generator=generator)
        images = torch.randn(batch_size, 3, 32, 32, generator=generator)
        found.append((images + labels.view(-1, 1, 1, 1) / 10, labels))
    return found


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[torch.Tensor, torch.Tensor],
) -> float:
    """Take one step and return the loss."""
    images, labels = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def timed(
    work: Callable[[int], float], steps: int, finish: Callable[[], object] = lambda: None
) -> dict[str, object]:
    """Return the seconds that each step took, the mean of ``steps``, and the last loss."""
    start_s, loss = time.perf_counter(), 0.0
    for number in range(steps):
        loss = work(number)
    finish()
    return {"seconds": (time.perf_counter() - start_s) / steps, "loss": loss}


def serve(rank: int, cases: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Answer cases that come by the Unix socket of the one argument, until it closes."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        lines = connection.makefile("rw")
        print(json.dumps({"rank": rank}), file=lines, flush=True)
        for line in lines:
            request = json.loads(line)
            try:
                answer = cases[request.pop("case")](**request)
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=lines, flush=True)
