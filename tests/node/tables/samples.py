"""Contributions to tables, as a worker sends them."""

import torch

from bireme.node.memory import bytes_of
from bireme.types.choices import Layout
from bireme.wire.messages import PushEntry


def contribution(ids, rows):
    """Return an entry and its payload, three bytes into it."""
    ids = torch.tensor(ids, dtype=torch.int64)
    raw = bytes(3) + bytes(bytes_of(ids)) + bytes(bytes_of(rows.contiguous().view(-1)))
    entry = PushEntry(1, 0, 0, len(raw) - 3, "raw", Layout.ROWS, len(ids))
    return entry, memoryview(raw), 3


def filled(ids, value, dim=2, dtype=torch.float32):
    """Return a contribution of equal numbers."""
    return contribution(ids, torch.full((len(ids), dim), float(value), dtype=dtype))
