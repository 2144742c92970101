"""Torch's own random numbers, for tests whose workers are threads of one process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TURN = threading.Lock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw the same numbers every time, though other threads make their networks too."""
    with _TURN, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
