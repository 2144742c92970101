"""Sums on the device that holds the key, with peer copies between GPUs."""

from collections.abc import Sequence

import torch
import torch.cuda.comm

from bireme.kvstore.base import Key
from bireme.kvstore.reduce.base import Reducer, Sum
from bireme.update.layout import HALF_DTYPES

__all__ = ("DeviceReducer",)


class DeviceReducer:
    """Adds where the first target lies; a host reducer does what begins and ends on the CPU.

    Args:
        host: Reducer for jobs whose first value and first target lie on the CPU.

    Example:
        >>> from bireme.kvstore.reduce.host import HostReducer
        >>> out = torch.empty(2)
        >>> DeviceReducer(HostReducer()).run([Sum("w", [torch.ones(2)] * 3, [out])])
        >>> out
        tensor([3., 3.])
    """

    def __init__(self, host: Reducer) -> None:
        self._host = host

    def check(self, key: Key, values: Sequence[torch.Tensor]) -> None:
        """Accept everything."""

    def run(self, jobs: Sequence[Sum]) -> None:
        """Carry out every job."""
        on_host = [job for job in jobs if _is_on_host(job)]
        if on_host:
            self._host.run(on_host)
        if len(on_host) < len(jobs):
            with torch.no_grad():
                for job in jobs:
                    if not _is_on_host(job):
                        _run(job)

    def forget(self) -> None:
        """Do nothing: there is no memory of keys."""


def _is_on_host(job: Sum) -> bool:
    return job.outs[0].is_cpu and job.values[0].is_cpu


def _run(job: Sum) -> None:
    home = job.outs[0].device
    total = _sum(job.values, home)
    _spread(total, job.outs)


def _sum(values: Sequence[torch.Tensor], home: torch.device) -> torch.Tensor:
    if len(values) == 1:
        return values[0].detach()
    dtype = values[0].dtype
    if dtype not in HALF_DTYPES and _are_distinct_gpus(values) and home.type == "cuda":
        dense = [value.detach().contiguous() for value in values]
        reduced: torch.Tensor = torch.cuda.comm.reduce_add(  # type: ignore[no-untyped-call]
            dense, destination=home.index
        )
        return reduced
    wide = torch.float32 if dtype in HALF_DTYPES else dtype
    # Start every peer copy before the first addition, so that they overlap.
    parts = [value.detach().to(home, non_blocking=value.is_cuda) for value in values]
    total = parts[0].to(wide, copy=True)
    for part in parts[1:]:
        total.add_(part)
    return total.to(dtype)


def _spread(value: torch.Tensor, outs: Sequence[torch.Tensor]) -> None:
    for out in outs:
        # Copies to the host block, so that the caller may read at once.
        out.copy_(value, non_blocking=out.is_cuda and value.is_cuda)


def _are_distinct_gpus(values: Sequence[torch.Tensor]) -> bool:
    places = {value.device for value in values}
    return len(places) == len(values) and all(place.type == "cuda" for place in places)
