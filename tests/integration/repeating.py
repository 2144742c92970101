"""A job whose steps repeat exactly, until somebody dies, leaves or is told to end.

Each step adds (rank + 1) * step of every worker to every key, and is checked by each of them. With
``ACT=kill:100`` W[1] kills itself before step 100, with ``ACT=under way:100`` while that step is
under way, and with ``ACT=leave:100`` it is done then; only a first process of that rank does so.
"""

import os
import signal
import sys
from pathlib import Path

import torch

import bireme

WARM = 20
"""After so many steps everything takes the short way."""

KEYS = [f"k{i}" for i in range(int(os.environ.get("KEYS", "1")))]
STEPS = int(os.environ.get("STEPS", str(10**9)))
WHAT, _, WHEN = os.environ.get("ACT", "none:-1").partition(":")
ONCE = Path(os.environ.get("ONCE", "/nonexistent"))
POLICY = os.environ.get("BIREME_ON_WORKER_DEATH", "abort")
TOGETHER, ALONE = 3.0, 1.0


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def allowed(step):
    """Return what a step may bring: alone, W[0] counts double if the other one has died."""
    is_replaced = POLICY == "wait" and WHAT != "leave"
    if WHAT == "none" or step < int(WHEN) or is_replaced:
        return {TOGETHER * step}
    alone = ALONE * step if WHAT == "leave" else 2 * ALONE * step
    # What was under way may have arrived.
    return {TOGETHER * step, alone} if step == int(WHEN) else {alone}


def train(store):
    values, outs = ([torch.zeros(1000) for _ in KEYS] for _ in range(2))
    first = store.rank == 1 and not ONCE.exists()
    is_replacement = store.rank == 1 and ONCE.exists()
    for step in range(STEPS):
        for value in values:
            value.fill_((store.rank + 1.0) * step)
        if first and step == int(WHEN):
            if WHAT == "leave":
                return
            ONCE.touch()
            if WHAT == "under way":
                store.pushpull_async(KEYS, values, outs)
            os.kill(os.getpid(), signal.SIGKILL)
        store.pushpull(KEYS, values, outs)
        found = {float(number) for out in outs for number in out.unique()}
        # A replacement that catches up gets the present values.
        if not is_replacement or step > int(WHEN):
            assert len(found) == 1, (step, found)
            assert found <= allowed(step), (step, found)
        if step == WARM:
            say("step", step)


def main():
    torch.set_num_threads(1)
    say("pid", os.getpid())
    store = bireme.kvstore.create("dist_sync")
    store.init(KEYS, [torch.zeros(1000) for _ in KEYS])
    try:
        train(store)
    except KeyboardInterrupt:
        if not os.environ.get("SAVE"):
            raise
        say("saved", store.pull("k0")[0].item() % 1.0)
    store.close()
    say("done")


if __name__ == "__main__":
    main()
