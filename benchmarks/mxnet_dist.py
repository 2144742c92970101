"""MXNet's side of bench_parameter_server.py: one process of a ``dist_sync`` job.

Runs in MXNet's interpreter. A scheduler or server never comes back from the import; a worker
answers cases from standard input.
"""

import time

import mxnet as mx
import numpy as np

from mxnet_peer import serve


class Worker:
    """Holds the store and the arrays of each case between two timings."""

    def __init__(self) -> None:
        self.store = mx.kv.create("dist_sync")
        self.cases = {}
        self.next_key = 0

    def prepare(self, name: str, sizes: list[int], seed: int) -> float:
        """Make and initialise the arrays of case ``name``: float32 vectors of ``sizes``."""
        random = np.random.RandomState(seed + self.store.rank)
        keys = list(range(self.next_key, self.next_key + len(sizes)))
        self.next_key += len(sizes)
        grads = [mx.nd.array(random.standard_normal(size).astype(np.float32)) for size in sizes]
        outs = [mx.nd.zeros(size) for size in sizes]
        self.store.init(keys, outs)
        self.cases[name] = (keys, grads, outs)
        return 0.0

    def pushpull(self, name: str, rounds: int) -> float:
        """Return the seconds of one push and pull of all keys, the mean of ``rounds``."""
        keys, grads, outs = self.cases[name]
        self.store._barrier()
        start_s = time.perf_counter()
        for _ in range(rounds):
            self.store.push(keys, grads)
            self.store.pull(keys, outs)
            for out in outs:
                out.wait_to_read()
        return (time.perf_counter() - start_s) / rounds


if __name__ == "__main__":
    worker = Worker()
    serve({"prepare": worker.prepare, "pushpull": worker.pushpull})
