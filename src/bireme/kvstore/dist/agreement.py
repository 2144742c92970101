"""Small agreements between the workers of a store, beside whatever the store does with pushes.

They are keys of their own on the servers, which only ever sum, one round at a time.
"""

import builtins
import threading

import torch

from bireme import errors
from bireme.errors import BiremeError, JobError
from bireme.kvstore.dist.directory import Directory
from bireme.kvstore.dist.receiving import Receipt
from bireme.node.encodings import RAW
from bireme.node.memory import Held
from bireme.node.worker import WorkerClient
from bireme.types.choices import Consistency, Layout
from bireme.wire.messages import JobConfig

__all__ = ("Agreement",)

_TEXT_BYTES = 1024


class Agreement:
    """Sums and tells small things. Every worker must take part, in the same order for each name.

    Args:
        client: The worker's link to the job.
        number: A store number that nothing else uses.
        config: The job's limits.
    """

    def __init__(self, client: WorkerClient, number: int, config: JobConfig) -> None:
        self._client = client
        self._timeout_s = config.pull_timeout_s
        self._directory = Directory(client, number, Consistency.SYNC, config)
        self._lock = threading.Lock()
        self._known: set[str] = set()

    def sum(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return the sum of every worker's ``value`` (dense, on any device)."""
        key = f"{name} {tuple(value.shape)} {value.dtype}"
        sent = value.detach().cpu().contiguous()
        with self._lock:
            if key not in self._known:
                self._directory.add({key: torch.zeros_like(sent)})
                self._known.add(key)
        (entry,) = self._directory.find([key])
        total = torch.empty_like(sent)
        receipt = Receipt(entry, [total])
        items = [
            (*span.slot, Held(view), view.nbytes, RAW, Layout.DENSE, 0)
            for span, view in zip(entry.spans, entry.cut(sent.view(-1)), strict=True)
        ]
        self._client.pushpull(items, receipt.places(), self._timeout_s)
        receipt.finish()
        return total.to(value.device)

    def meet(self) -> None:
        """Return when every worker has come here."""
        self.sum("meeting", torch.zeros(1))

    def share_outcome(self, error: BiremeError | OSError | None) -> None:
        """Raise rank 0's error on every worker, if there is one.

        Args:
            error: What went wrong here; only rank 0's counts.
        """
        mine = torch.zeros(_TEXT_BYTES, dtype=torch.uint8)
        if self._client.rank == 0 and error is not None:
            raw = f"{type(error).__name__}:{error}".encode()[:_TEXT_BYTES]
            mine[: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        told = bytes(self.sum("outcome", mine).numpy()).rstrip(b"\0").decode(errors="replace")
        if self._client.rank == 0 and error is not None:
            raise error
        if told:
            name, _, text = told.partition(":")
            raise _kind(name)(f"on rank 0: {text}")


def _kind(name: str) -> type[BiremeError] | type[OSError]:
    for place in (errors, builtins):
        kind = getattr(place, name, None)
        if isinstance(kind, type) and issubclass(kind, BiremeError | OSError):
            return kind
    return JobError
