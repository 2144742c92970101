"""Trains a deep network of equal layers; tells when each backward pass began and ended.

``overlapping_backward.py FOLDER [STEPS]``, by a launcher, with ``HOROVOD_TIMELINE`` set.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

import bireme.horovod.torch as hvd

LAYERS, WIDTH, BATCH = 8, 768, 256


def meet():
    hvd.allreduce(torch.ones(1), name="meet")


def main(folder, steps=4):
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters()
    )
    # What this waits for was submitted after the gradients of the layers behind; one layer is left.
    model[1].register_full_backward_hook(lambda *_: meet())
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(hvd.rank()))
    spans = []
    for step in range(int(steps)):
        optimizer.zero_grad()
        hvd.barrier()
        loss = model(x).pow(2).mean()
        began_s = time.time()
        loss.backward()
        ended_s = time.time()
        optimizer.step()
        spans.append((began_s, ended_s, time.time()))
        if step == 2:
            Path(folder, f"pid-{hvd.rank()}").write_text(f"{os.getpid()}\n")
    Path(folder, f"spans.{hvd.rank()}.json").write_text(json.dumps(spans))
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
