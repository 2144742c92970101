"""A worker that loads data in a process of its own, which outlives it when it is killed.

``ACT=1:3`` lets W[1] kill itself at step 3. Every step says when it ended.
"""

import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

import bireme
from bireme.errors import StateError

torch.set_num_threads(1)
WHO, WHEN = os.environ["ACT"].split(":")


class Samples(Dataset):
    """Each sample asks the store for something, and says what came of it."""

    def __init__(self, store):
        self.store = store

    def __len__(self):
        return 8

    def __getitem__(self, index):
        try:
            self.store.pull("w")
        except StateError as error:
            return str(error)
        return "pulled"


def leave_the_group(_worker):
    # The launcher ends a dead worker's process group: this child is to live on.
    os.setsid()


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


store = bireme.kvstore.create("dist_sync")
store.init("w", torch.zeros(4))
loader = DataLoader(
    Samples(store),
    batch_size=1,
    num_workers=1,
    worker_init_fn=leave_the_group,
    multiprocessing_context="fork",
)
answers = set()
for step, (answer,) in enumerate(loader):
    answers.add(answer)
    if str(store.rank) == WHO and step == int(WHEN):
        say("killed at", time.monotonic())
        os.kill(os.getpid(), signal.SIGKILL)
    store.push("w", torch.ones(4))
    say("step", step, store.pull("w")[0].item(), "at", time.monotonic())
say("child:", *answers)
store.close()
