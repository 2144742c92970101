"""Our side of bench_parameter_server.py: one process of a ``dist_sync`` job.

Started by ``bireme run`` in every role; a scheduler or server never comes back from ``create``. A
worker answers cases that come by a Unix socket, whose path is the one argument, in the lines of
``mxnet_peer.serve``.
"""

import hashlib
import json
import socket
import sys
import time
import traceback

import torch

from bireme import kvstore
from bireme.kvstore.dist.store import DistStore


class Worker:
    """Holds the store and the tensors of each case between two timings."""

    def __init__(self, store: DistStore) -> None:
        self.store = store
        self.cases: dict[str, tuple[list[int], list[torch.Tensor], list[torch.Tensor]]] = {}
        self.seeds: dict[str, int] = {}
        self.next_key = 0

    def prepare(self, name: str, sizes: list[int], seed: int) -> dict[str, object]:
        """Make and initialise the tensors of case ``name``: float32 vectors of ``sizes``."""
        generator = torch.Generator().manual_seed(seed + self.store.rank)
        keys = list(range(self.next_key, self.next_key + len(sizes)))
        self.next_key += len(sizes)
        grads = [torch.randn(size, generator=generator) for size in sizes]
        outs = [torch.zeros(size) for size in sizes]
        self.store.init(keys, outs)
        self.cases[name] = (keys, grads, outs)
        self.seeds[name] = seed
        return {"seconds": 0.0}

    def pushpull(self, name: str, rounds: int) -> dict[str, object]:
        """Time one pushpull of all keys, the mean of ``rounds``."""
        keys, grads, outs = self.cases[name]
        self.store.barrier()
        start_s = time.perf_counter()
        for _ in range(rounds):
            self.store.pushpull(keys, grads, outs)
        return {"seconds": (time.perf_counter() - start_s) / rounds}

    def pull(self, name: str, rounds: int) -> dict[str, object]:
        """Time one pull of all keys, the mean of ``rounds``."""
        keys, _, outs = self.cases[name]
        self.store.barrier()
        start_s = time.perf_counter()
        for _ in range(rounds):
            self.store.pull(keys, outs)
        return {"seconds": (time.perf_counter() - start_s) / rounds}

    def broadcast(self, name: str, sizes: list[int], seed: int) -> dict[str, object]:
        """Broadcast the tensors of a new case ``name``."""
        self.prepare(name, [], seed)
        generator = torch.Generator().manual_seed(seed + self.store.rank)
        keys = list(range(self.next_key, self.next_key + len(sizes)))
        self.next_key += len(sizes)
        grads = [torch.randn(size, generator=generator) for size in sizes]
        outs = [torch.zeros(size) for size in sizes]
        self.store.broadcast(keys, grads, outs)
        self.cases[name] = (keys, grads, outs)
        return {"seconds": 0.0}

    def total(self, name: str) -> dict[str, object]:
        """Return the sum over what the last pushpull brought back."""
        return {"sum": sum(float(out.double().sum()) for out in self.cases[name][2])}

    def digest(self, name: str) -> dict[str, object]:
        """Return a digest of the bits that the last pushpull brought back."""
        whole = hashlib.sha256()
        for out in self.cases[name][2]:
            whole.update(out.numpy().tobytes())
        return {"digest": whole.hexdigest()}

    def expected(self, name: str) -> dict[str, object]:
        """Return that sum, from what every worker is known to have pushed."""
        total = 0.0
        for rank in range(self.store.num_workers):
            generator = torch.Generator().manual_seed(self.seeds[name] + rank)
            for grad in self.cases[name][1]:
                total += float(torch.randn(grad.numel(), generator=generator).double().sum())
        return {"sum": total}

    def counts(self) -> dict[str, object]:
        """Return how many messages this worker has sent and received so far."""
        return {"messages": self.store._client.num_messages}


def main() -> None:
    """Join the job and answer cases until the socket closes."""
    torch.set_num_threads(1)
    store = kvstore.create("dist_sync")
    assert isinstance(store, DistStore)
    worker = Worker(store)
    cases = {
        "prepare": worker.prepare,
        "pushpull": worker.pushpull,
        "pull": worker.pull,
        "broadcast": worker.broadcast,
        "counts": worker.counts,
        "total": worker.total,
        "digest": worker.digest,
        "expected": worker.expected,
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        lines = connection.makefile("rw")
        print(json.dumps({"rank": store.rank}), file=lines, flush=True)
        for line in lines:
            request = json.loads(line)
            try:
                answer = cases[request.pop("case")](**request)
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=lines, flush=True)
    store.close()


if __name__ == "__main__":
    main()
