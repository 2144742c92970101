"""One process of bench_collectives.py; ``collectives_peer.py torch|horovod SOCKET``.

``torch`` holds groups of the backends gloo and bireme and our engine side by side; ``horovod`` is
Horovod, in the environment that was built for it. Cases come by the Unix socket.

Horovod is up only while it is timed: its threads negotiate every millisecond, also with nothing to
do, and would take cores from the others, which nobody's program runs beside it.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))

import e2e_models as models

Reduce = Callable[[list[torch.Tensor]], None]
NUM_WARM_UP = 5
"""A response cache knows an operation from its second or third time on."""


class Worker:
    """Times what is asked, with one of several ways to reduce.

    Args:
        rank: This process's.
        ways: By name: a function that reduces tensors, all submitted before the first is awaited.
        wrap: By name: makes ``(model, optimizer)`` one that trains on all processes.
        barrier: Waits for all.
        up: Entered around each timing and its warming up.
    """

    def __init__(
        self,
        rank: int,
        ways: dict[str, Reduce],
        wrap: dict[str, Callable[..., Any]],
        barrier: Callable[[], None],
        up: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.rank, self.ways, self.wrap, self.barrier, self.up = rank, ways, wrap, barrier, up
        self.trained: dict[str, Any] = {}

    def names(self) -> dict[str, object]:
        """Return the ways there are."""
        return {"ways": sorted(self.ways), "trainers": sorted(self.wrap)}

    def reduce(self, way: str, sizes: list[int], count: int) -> dict[str, object]:
        """Time a reduction, the mean of ``count``; sizes in bytes."""
        tensors = [torch.zeros(size // 4) for size in sizes]
        with self.up():
            for _ in range(NUM_WARM_UP):
                self.ways[way](tensors)
            self.barrier()
            start_s = time.perf_counter()
            for _ in range(count):
                self.ways[way](tensors)
            seconds = (time.perf_counter() - start_s) / count
        return {"seconds": seconds}

    def train(self, way: str, model: str, batch_size: int, steps: int) -> dict[str, object]:
        """Time some steps."""
        with self.up():
            return self._train(way, model, batch_size, steps)

    def _train(self, way: str, model: str, batch_size: int, steps: int) -> dict[str, object]:
        if way not in self.trained:
            net = models.make(model)
            optimizer = torch.optim.SGD(net.parameters(), lr=models.LR, momentum=0.9)
            self.trained[way] = (
                *self.wrap[way](net, optimizer),
                models.batches(self.rank, batch_size),
            )
        net, optimizer, batches = self.trained[way]
        self.barrier()
        return models.timed(
            lambda number: models.step(net, optimizer, batches[number % len(batches)]), steps
        )

    def serve(self) -> None:
        """Answer until the socket closes."""
        del sys.argv[1]
        cases = {"names": self.names, "reduce": self.reduce, "train": self.train}
        models.serve(self.rank, cases)


def by_group(group: Any) -> Reduce:
    """Return how to reduce over a process group."""

    def reduce(tensors: list[torch.Tensor]) -> None:
        if len(tensors) == 1:
            dist.all_reduce(tensors[0], group=group)
            return
        for work in [dist.all_reduce(each, group=group, async_op=True) for each in tensors]:
            work.wait()

    return reduce


def by_hvd(hvd: Any) -> Reduce:
    """Return how to reduce with Horovod's functions, or ours by those names."""

    def reduce(tensors: list[torch.Tensor]) -> None:
        handles = [
            hvd.allreduce_async_(each, name=f"t{index}", op=hvd.Sum)
            for index, each in enumerate(tensors)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    return reduce


def by_optimizer(hvd: Any) -> Callable[..., Any]:
    """Return how to train with ``DistributedOptimizer``."""

    def wrap(net: Any, optimizer: Any) -> tuple[Any, Any]:
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        return net, hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())

    return wrap


def by_ddp(group: Any) -> Callable[..., Any]:
    """Return how to train with ``DistributedDataParallel``."""
    from torch.nn.parallel import DistributedDataParallel

    return lambda net, optimizer: (DistributedDataParallel(net, process_group=group), optimizer)


def torch_worker(with_engine: bool) -> Worker:
    """Return a worker of Gloo, our backend, and our engine."""
    from bireme.collective.backend import register_backend

    register_backend()
    dist.init_process_group("gloo")
    ours = dist.new_group(backend="bireme")
    ways = {"gloo": by_group(None), "bireme": by_group(ours)}
    wrap = {"ddp gloo": by_ddp(None), "ddp bireme": by_ddp(ours)}
    if with_engine:
        import bireme.horovod.torch as hvd

        hvd.init()
        ways["engine"] = by_hvd(hvd)
        wrap["hvd bireme"] = by_optimizer(hvd)
    return Worker(dist.get_rank(), ways, wrap, dist.barrier)


def horovod_worker() -> Worker:
    """Return a worker of Horovod."""
    import horovod.torch as hvd

    @contextlib.contextmanager
    def up() -> Iterator[None]:
        hvd.init()
        yield
        hvd.shutdown()

    with up():
        rank = hvd.rank()
    ways, wrap = {"horovod": by_hvd(hvd)}, {"horovod": by_optimizer(hvd)}
    return Worker(rank, ways, wrap, hvd.barrier, up)


if __name__ == "__main__":
    torch.set_num_threads(1)
    side = sys.argv[1]
    (horovod_worker() if side == "horovod" else torch_worker(side == "engine")).serve()
