"""One rank that forks, loads data by processes, or gets signals.

``horovod_processes.py MODE``, by whoever sets its rank.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import bireme.horovod.torch as hvd
from bireme.errors import StateError

LATE_S = 60


def say(*words):
    sys.stdout.write("|".join(map(str, words)) + "\n")
    sys.stdout.flush()


def works():
    total = hvd.allreduce(torch.ones(1000), op=hvd.Sum)
    assert total[0] == total[-1] == hvd.size()


def in_a_child():
    try:
        hvd.allreduce(torch.ones(2))
    except StateError as error:
        return type(error).__name__
    return "no error"


def forks():
    works()
    under_way = hvd.allreduce_async(torch.ones(10), name="before the fork", op=hvd.Sum)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.write(writing, in_a_child().encode())
        hvd.shutdown()
        # Ends as scripts do, with what was registered to run at exit.
        sys.exit(0)
    os.close(writing)
    works()
    assert os.waitpid(pid, 0)[1] == 0
    assert hvd.synchronize(under_way)[0] == hvd.size()
    say(os.read(reading, 100).decode())
    with multiprocessing.get_context("fork").Pool(2) as pool:
        say(*pool.starmap(in_a_child, [(), ()]))
    works()
    ended = subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, text=True)
    say(ended.stdout.strip())
    works()


class Squares(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor(float(index * index))


def loaders():
    for context in ("fork", "spawn"):
        sampler = DistributedSampler(Squares(), hvd.size(), hvd.rank(), shuffle=False)
        loader = DataLoader(
            Squares(), 2, sampler=sampler, num_workers=1, multiprocessing_context=context
        )
        total = sum(hvd.allreduce(batch.sum(), op=hvd.Sum).item() for batch in loader)
        say(context, total)


def waits():
    """Rank 0 waits for a rank that is late for ever."""
    works()
    try:
        say("running")
        if hvd.rank() == 1:
            time.sleep(LATE_S)
        works()
    except hvd.HorovodInternalError as error:
        say("HorovodInternalError", error)
    except KeyboardInterrupt:
        say("KeyboardInterrupt")


def exits_on_sigterm():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    waits()


def hears():
    """A handler runs while rank 0 waits, and the operation ends as if nothing had been."""
    seen = []

    def handle(*_):
        seen.append(1)
        say("handled")

    signal.signal(signal.SIGUSR1, handle)
    works()
    say("running")
    while hvd.rank() == 1 and not seen:
        time.sleep(0.01)
    works()


def waits_again():
    """Rank 0 is interrupted while it waits for a rank that is late, and then waits again."""
    seen, total = [], None
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    works()
    say("running")
    while hvd.rank() == 1 and not seen:
        time.sleep(0.01)
    number = hvd.allreduce_async(torch.ones(1000), name="late", op=hvd.Sum)
    while total is None:
        try:
            total = hvd.synchronize(number)
        except KeyboardInterrupt:
            say("KeyboardInterrupt")
    assert total[0] == total[-1] == hvd.size()
    works()


def waits_for_a_start():
    """Rank 0 waits in ``init`` for a rank that does not start."""
    if os.environ["RANK"] == "1":
        time.sleep(LATE_S)
    try:
        say("running")
        hvd.init()
    except KeyboardInterrupt:
        say("KeyboardInterrupt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] != "waits_for_a_start":
        hvd.init()
    globals()[sys.argv[1]]()
    hvd.shutdown()
    say("done")
