"""From pushed tensors to what goes to the servers: merged, compressed, cut into slots."""

import torch

from bireme.compress.base import Compressor
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.calls import Push
from bireme.kvstore.dist.entry import DistEntry
from bireme.kvstore.reduce import Reducer, Sum, sum_rows
from bireme.node.encodings import RAW, encoding_of
from bireme.node.memory import Held, bytes_of
from bireme.node.worker import PushItem
from bireme.types.choices import Layout as WireLayout
from bireme.update.layout import lies_plain

__all__ = ("Sender",)

_CPU = torch.device("cpu")


class Sender:
    """Prepares pushes of one store.

    Args:
        bank: Sums the values of this process's devices.
    """

    def __init__(self, bank: Reducer) -> None:
        self._bank = bank
        self._compressor: Compressor | None = None

    @property
    def compresses(self) -> bool:
        """Whether dense pushes are compressed."""
        return self._compressor is not None

    def compress_with(self, compressor: Compressor | None) -> None:
        """Compress dense pushes from now on; residuals are the entries' and start afresh."""
        self._compressor = compressor

    def check(self, push: Push[DistEntry]) -> None:
        """Refuse what cannot be sent; changes nothing.

        Raises:
            UnsupportedError: The compressor cannot take this dtype.
        """
        if push.row_sparse:
            return
        self._bank.check(push.entry.key, push.values)
        if self._compressor is not None and push.entry.residuals is None:
            self._compressor.init(push.values[0].detach())
            if push.entry.layout.dtype is not torch.float32:
                raise UnsupportedError(
                    f"key {push.entry.key!r} holds {push.entry.layout.dtype}, and only float32 "
                    "gradients travel compressed; set_gradient_compression(None)"
                )

    def items(self, entry: DistEntry, push: Push[DistEntry], *, borrow: bool) -> list[PushItem]:
        """Return what to send for one key.

        Args:
            entry: The key.
            push: Its checked values.
            borrow: Send from the caller's memory where that is possible: the caller waits until
                the push is acknowledged.
        """
        if push.row_sparse:
            return _row_items(entry, sum_rows(push.values, _CPU))
        flat = _as_is(push.values)
        if flat is not None and self._compressor is not None:
            return self._compressed_items(entry, flat)
        if flat is not None and borrow:
            return _items(entry, [Held(view) for view in entry.cut(flat)], RAW)
        staged = entry.staging()
        self._bank.run([Sum(entry.key, push.values, [staged.view(entry.layout.shape)])])
        if self._compressor is None:
            return _items(entry, entry.hand_out(staged), RAW)
        items = self._compressed_items(entry, staged)
        entry.put_back(staged)
        return items

    @staticmethod
    def plain_items(entry: DistEntry, value: torch.Tensor) -> list[PushItem]:
        """Return what to send of a dense contiguous CPU tensor that nobody changes afterwards."""
        return _items(entry, [Held(view) for view in entry.cut(value.view(-1))], RAW)

    def _compressed_items(self, entry: DistEntry, flat: torch.Tensor) -> list[PushItem]:
        compressor = self._compressor
        assert compressor is not None
        with entry.compressing:
            return self._compressed(entry, flat, compressor)

    @staticmethod
    def _compressed(entry: DistEntry, flat: torch.Tensor, compressor: Compressor) -> list[PushItem]:
        parts = [flat[span.offset : span.offset + span.length] for span in entry.spans]
        if entry.residuals is None:
            entry.residuals = [compressor.init(part) for part in parts]
        sent = []
        for number, part in enumerate(parts):
            payload, entry.residuals[number] = compressor.compress(part, entry.residuals[number])
            sent.append(Held(bytes_of(payload.data)))
        return _items(entry, sent, encoding_of(compressor))


def _as_is(values: list[torch.Tensor]) -> torch.Tensor | None:
    value = values[0].detach()
    return value.view(-1) if len(values) == 1 and value.is_cpu and lies_plain(value) else None


def _items(entry: DistEntry, held: list[Held], encoding: str) -> list[PushItem]:
    return [
        (*span.slot, each, each.view.nbytes, encoding, WireLayout.DENSE, 0)
        for span, each in zip(entry.spans, held, strict=True)
    ]


def _row_items(entry: DistEntry, total: torch.Tensor) -> list[PushItem]:
    width = max(1, entry.row_length)
    # Rows of nothing are as good as no rows.
    count = total.indices().shape[1] if entry.row_length else 0
    ids, rows = total.indices()[0, :count], total.values()[:count].reshape(count, width)
    items: list[PushItem] = []
    if not entry.has_whole_rows:
        raise UnsupportedError(
            f"key {entry.key!r} has rows of {width} elements that lie on several servers, so "
            "they cannot be pushed one by one; raise BIREME_SLICE_BYTES above a row's size"
        )
    if count and (int(ids[0]) < 0 or int(ids[-1]) >= entry.layout.shape[0]):
        raise ConfigError(
            f"rows {int(ids[0])} to {int(ids[-1])} were pushed to key {entry.key!r}, but it has "
            f"{entry.layout.shape[0]} rows, numbered from 0"
        )
    for span in entry.spans:
        first, end = span.offset // width, (span.offset + span.length) // width
        low, high = torch.searchsorted(ids, torch.tensor([first, end])).tolist()
        local = (ids[low:high] - first).contiguous()
        raw = torch.cat(
            [local.view(torch.uint8), rows[low:high].reshape(-1).contiguous().view(torch.uint8)]
        )
        held = Held(bytes_of(raw))
        items.append((*span.slot, held, raw.nbytes, RAW, WireLayout.ROWS, high - low))
    return items
