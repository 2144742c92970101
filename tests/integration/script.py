"""What every process of the failure tests runs; the variables say what goes wrong where.

``ACT=kill:1:2`` lets W[1] kill itself at step 2, and with ``ONCE=folder`` only the first process
of that rank. Each step adds rank + 1 of every worker. Without a file named by
``HOLD`` W[0] does not make its last step.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

import bireme

torch.set_num_threads(1)


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


say("pid", os.getpid())
STEPS = int(os.environ.get("STEPS", "5"))
PAUSE_S = float(os.environ.get("PAUSE", "0"))
WHAT, WHO, WHEN = os.environ.get("ACT", "none:-1:0").split(":")
STEPS_TO_ACT = [int(step) for step in WHEN.split(",")]
ONCE = os.environ.get("ONCE")
HOLD = os.environ.get("HOLD")


def is_due(rank, step):
    if str(rank) != WHO or step not in STEPS_TO_ACT:
        return False
    if ONCE is None:
        return True
    mark = Path(ONCE) / f"step-{step}"
    if mark.exists():
        return False
    mark.touch()
    return True


def act(store):
    if WHAT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif WHAT == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif WHAT == "raise":
        raise ValueError("bad sample 17")
    elif WHAT == "exit":
        sys.exit(3)
    elif WHAT == "close":
        store.close()
        sys.exit(0)
    elif WHAT == "return":
        sys.exit(0)
    elif WHAT == "vanish":
        os._exit(0)
    elif WHAT == "hang":
        time.sleep(60)
    elif WHAT == "barrier":
        store.barrier()


def train(store):
    rank = store.rank
    for step in range(STEPS):
        if is_due(rank, step):
            act(store)
        while HOLD and (rank, step) == (0, STEPS - 1) and not os.path.exists(HOLD):
            time.sleep(0.01)
        store.push("w", torch.full((4,), float(rank + 1)))
        if os.environ.get("WAIT_ALL"):
            store.wait_all()
        say("step", step, store.pull("w")[0].item())
        time.sleep(PAUSE_S)


def save(store):
    say("saving")
    if os.environ["SAVE"] == "hang":
        time.sleep(60)
    say("saved", store.pull("w")[0].item())
    store.close()


def main():
    if (os.environ["BIREME_ROLE"], os.environ["BIREME_RANK"]) == ("worker", WHO):
        if WHAT == "late":
            time.sleep(60)
        elif WHAT == "secret":
            os.environ["BIREME_SECRET"] = "another secret " * 4
    store = bireme.kvstore.create(os.environ.get("KIND", "dist_sync"))
    store.init("w", torch.zeros(4))
    try:
        train(store)
    except KeyboardInterrupt:
        if not os.environ.get("SAVE"):
            raise
        save(store)
        return
    if not os.environ.get("NO_CLOSE"):
        store.close()
    say("done")


main()
