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
_SAYING_BYTES = 256
_URGENT = (1 << 31) - 1
"""What workers agree on is small, and they wait for it: it overtakes whatever leaves."""


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
        self._num_workers = config.num_workers
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
        self._client.pushpull(items, receipt.places(), self._timeout_s, priority=_URGENT)
        receipt.finish()
        return total.to(value.device)

    def meet(self) -> None:
        """Return when every worker has come here."""
        self.sum("meeting", torch.zeros(1))

    def gather(self, name: str, text: str) -> dict[int, str]:
        """Return what every worker says, by rank; those that are gone say nothing.

        Args:
            name: What it is about.
            text: What this worker says; only its first 256 bytes are told.
        """
        rows = torch.zeros(self._num_workers, _SAYING_BYTES, dtype=torch.float64)
        rows[self._client.rank] = _numbers(text, _SAYING_BYTES)
        present, told = self._exact(name, rows.view(-1))
        said = told.view(rows.shape)
        return {rank: _text(row) for rank, row in enumerate(said) if present[rank]}

    def _exact(self, name: str, mine: torch.Tensor) -> tuple[list[bool], torch.Tensor]:
        """Return which ranks take part, and the sum of their small whole numbers.

        Where workers have died, servers make up for them by a factor: each worker adds a one of
        its own, which shows the factor.
        """
        ones = torch.zeros(self._num_workers, dtype=torch.float64)
        ones[self._client.rank] = 1.0
        told = self.sum(name, torch.cat([ones, mine]))
        told = (told / told[self._client.rank]).round()
        return told[: len(ones)].bool().tolist(), told[len(ones) :]

    def share_outcome(self, error: BiremeError | OSError | None) -> None:
        """Raise rank 0's error on every worker, if there is one.

        Args:
            error: What went wrong here; only rank 0's counts.
        """
        speaks = self._client.rank == 0 and error is not None
        mine = f"{type(error).__name__}:{error}" if speaks else ""
        told = _text(self._exact("outcome", _numbers(mine, _TEXT_BYTES))[1])
        if speaks:
            assert error is not None
            raise error
        if told:
            name, _, text = told.partition(":")
            raise _kind(name)(f"on rank 0: {text}")


def _numbers(text: str, size: int) -> torch.Tensor:
    """Return the first bytes of a text as floats, which sums and factors leave exact."""
    raw = text.encode("utf-8", "backslashreplace")[:size].ljust(size, b"\0")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).double()


def _text(numbers: torch.Tensor) -> str:
    return bytes(numbers.to(torch.uint8).numpy()).rstrip(b"\0").decode(errors="replace")


def _kind(name: str) -> type[BiremeError] | type[OSError]:
    for place in (errors, builtins):
        kind = getattr(place, name, None)
        if isinstance(kind, type) and issubclass(kind, BiremeError | OSError):
            return kind
    return JobError
