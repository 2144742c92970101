"""Gloo's side of bench_network.py: one process of an all-reduce over ``torch.distributed``.

Answers cases that come by a Unix socket, whose path is the one argument, as ``bireme_dist.py``
does. Rank, size and addresses stand in torch's own environment variables.
"""

import json
import os
import socket
import sys
import time
import traceback

import torch
import torch.distributed as dist


class Worker:
    """Holds the tensors of each case between two timings."""

    def __init__(self) -> None:
        self.cases: dict[str, list[torch.Tensor]] = {}

    def prepare(self, name: str, sizes: list[int], seed: int) -> dict[str, object]:
        """Make the tensors of case ``name``."""
        generator = torch.Generator().manual_seed(seed + dist.get_rank())
        self.cases[name] = [torch.randn(size, generator=generator) for size in sizes]
        return {"seconds": 0.0}

    def pushpull(self, name: str, rounds: int) -> dict[str, object]:
        """Time one all-reduce of all tensors, the mean of ``rounds``."""
        dist.barrier()
        start_s = time.perf_counter()
        for _ in range(rounds):
            waiting = [dist.all_reduce(each, async_op=True) for each in self.cases[name]]
            for each in waiting:
                each.wait()
        return {"seconds": (time.perf_counter() - start_s) / rounds}


def main() -> None:
    """Join the group and answer cases until the socket closes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    worker = Worker()
    cases = {"prepare": worker.prepare, "pushpull": worker.pushpull}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        lines = connection.makefile("rw")
        print(json.dumps({"rank": int(os.environ["RANK"])}), file=lines, flush=True)
        for line in lines:
            request = json.loads(line)
            try:
                answer = cases[request.pop("case")](**request)
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer), file=lines, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
