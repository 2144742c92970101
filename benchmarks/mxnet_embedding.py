"""MXNet's side of bench_embedding.py: one process of a ``dist_sync`` job with a row-sparse key.

Runs in MXNet's interpreter. A scheduler or server never comes back from the import; the worker
answers cases from standard input.
"""

import time

import mxnet as mx
import numpy as np

from mxnet_peer import serve

KEY = "table"


class Worker:
    """Holds the store and a table of ones."""

    def __init__(self) -> None:
        self.store = mx.kv.create("dist_sync")
        self.shape = (0, 0)

    def prepare(self, rows: int, dim: int) -> dict:
        """Make the table, whole, and let the servers run SGD."""
        self.shape = (rows, dim)
        self.store.init(KEY, mx.nd.ones(self.shape).tostype("row_sparse"))
        self.store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, lazy_update=True))
        return {}

    def measure(self, batch: int, rounds: int, seed: int) -> dict:
        """Return the seconds of a pull and of a push of ``batch`` rows, the medians."""
        random = np.random.RandomState(seed)
        out = mx.nd.sparse.zeros("row_sparse", self.shape)
        pulls, pushes = [], []
        for _ in range(rounds):
            ids = np.sort(random.choice(self.shape[0], batch, replace=False)).astype(np.int64)
            rows = mx.nd.array(ids, dtype=np.int64)
            grad = mx.nd.sparse.row_sparse_array(
                (mx.nd.ones((batch, self.shape[1])), rows), shape=self.shape
            )
            grad.wait_to_read()
            begun = time.perf_counter()
            self.store.row_sparse_pull(KEY, out=out, row_ids=rows)
            out.wait_to_read()
            pulled = time.perf_counter()
            self.store.push(KEY, grad)
            # A push has no end of its own: a pull of one row waits for it.
            self.store.row_sparse_pull(KEY, out=out, row_ids=rows[:1])
            out.wait_to_read()
            pulls.append(pulled - begun)
            pushes.append(time.perf_counter() - pulled)
        return {"pull": float(np.median(pulls)), "push": float(np.median(pushes))}


if __name__ == "__main__":
    worker = Worker()
    serve({"prepare": worker.prepare, "measure": worker.measure})
