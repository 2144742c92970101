"""Keys that fill several bundles, exchanged again and again, on every worker of a job."""

import torch
from tests.integration.programs.harness import Checks, equal

SIZES = [100_000, 10, 300_000, 7, 200_000] * 4

check = Checks()


@check
def many_keys_are_exchanged_at_once(job):
    store = job.store()
    keys = list(range(len(SIZES)))
    outs = [torch.zeros(size) for size in SIZES]
    store.init(keys, outs)
    for step in range(5):
        values = [torch.full((size,), float(job.rank + step)) for size in SIZES]
        store.pushpull(keys, values, outs)
        for out in outs:
            equal(out, sum(rank + step for rank in range(job.size)))


if __name__ == "__main__":
    check.run()
