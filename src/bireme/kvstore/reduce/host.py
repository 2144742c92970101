"""Sums on the CPU: a compiled plan for whole batches, torch for what it cannot read."""

from collections.abc import Sequence
from functools import cache

import torch

from bireme.kvstore.base import Key
from bireme.kvstore.reduce.base import Sum
from bireme.kvstore.reduce.crew import Crew
from bireme.kvstore.reduce.kernel import Plan
from bireme.kvstore.reduce.lines import can_add
from bireme.update.layout import lies_plain

__all__ = ("HostReducer",)

# From here a second thread saves more than it costs to wake it.
_CREW_BYTES = 512 * 1024
# From here the targets of one call would drive each other out of the cache.
_STREAM_BYTES = 8 * 1024 * 1024
# Of a half-type sum in torch, which passes through a float32 buffer.
_BLOCK_ELEMENTS = 64 * 1024


class HostReducer:
    """Adds on the CPU, with as many threads as torch may use.

    Example:
        >>> out = torch.empty(2)
        >>> HostReducer().run([Sum("w", [torch.ones(2), torch.ones(2)], [out])])
        >>> out
        tensor([2., 2.])
    """

    def __init__(self) -> None:
        self._crew = Crew()

    def check(self, key: Key, values: Sequence[torch.Tensor]) -> None:
        """Accept everything."""

    def run(self, jobs: Sequence[Sum]) -> None:
        """Carry out every job."""
        batches: dict[torch.dtype, _Batch] = {}
        with torch.no_grad():
            for job in jobs:
                dtype = job.values[0].dtype
                if not can_add(_kind(dtype)):
                    _sum_halves(job)
                    continue
                if dtype not in batches:
                    batches[dtype] = _Batch(dtype)
                batches[dtype].add(job)
            for batch in batches.values():
                batch.run(self._crew)

    def forget(self) -> None:
        """Do nothing: there is no memory of keys."""


class _Batch:
    """Jobs of one dtype, on their way into a plan."""

    __slots__ = (
        "addresses",
        "dtype",
        "jobs",
        "kept",
        "late",
        "num_bytes",
        "out_bytes",
        "sources",
        "written",
    )

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.addresses: list[int] = []
        self.jobs: list[tuple[int, int, int]] = []
        self.kept: list[torch.Tensor] = []
        self.written: list[torch.Tensor] = []
        self.late: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.sources: set[torch.device] = set()
        self.num_bytes = 0
        self.out_bytes = 0

    def add(self, job: Sum) -> None:
        addresses = self.addresses
        for value in job.values:
            if not (value.is_cpu and lies_plain(value)):
                value = _hosted(value, self.sources).resolve_neg().contiguous()
                self.kept.append(value)
            addresses.append(value.data_ptr())
        for out in job.outs:
            if not (out.is_cpu and lies_plain(out)):
                late = out
                out = torch.empty(out.shape, dtype=out.dtype)
                self.late.append((late, out))
            else:
                self.written.append(out)
            addresses.append(out.data_ptr())
        numel = job.values[0].numel()
        self.jobs.append((len(job.values), len(job.outs), numel))
        size_bytes = numel * self.dtype.itemsize
        self.num_bytes += size_bytes * (len(job.values) + len(job.outs))
        self.out_bytes += size_bytes * len(job.outs)

    def run(self, crew: Crew) -> None:
        _wait_for(self.sources)
        stream = self.out_bytes >= _STREAM_BYTES
        plan = Plan(_kind(self.dtype), self.addresses, self.jobs, stream)
        num_threads = torch.get_num_threads() if self.num_bytes >= _CREW_BYTES else 1
        crew.run(plan.run, num_threads)
        # The kernel writes behind torch's back, and autograd must know that values changed.
        torch.autograd.graph.increment_version(self.written)
        for out, value in self.late:
            out.copy_(value)


def _hosted(value: torch.Tensor, sources: set[torch.device]) -> torch.Tensor:
    if not value.is_cuda:
        return value.detach().cpu()
    # Into pinned memory, so that copies from several devices run at the same time.
    host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    host.copy_(value.detach(), non_blocking=True)
    sources.add(value.device)
    return host


def _wait_for(sources: set[torch.device]) -> None:
    for device in sources:
        torch.cuda.current_stream(device).synchronize()


@cache
def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _sum_halves(job: Sum) -> None:
    sources: set[torch.device] = set()
    values = [_hosted(value, sources).reshape(-1) for value in job.values]
    _wait_for(sources)
    total = torch.empty_like(values[0]) if len(values) > 1 else values[0]
    for start in range(0, total.numel() if len(values) > 1 else 0, _BLOCK_ELEMENTS):
        block = slice(start, start + _BLOCK_ELEMENTS)
        wide = values[0][block].float()
        for value in values[1:]:
            wide.add_(value[block])
        total[block] = wide
    for out in job.outs:
        out.copy_(total.view(out.shape))
