"""How one key's sum over this worker's devices becomes the sum over all workers.

Called by `WorkersReducer` and by the ``allreduce`` store, which begins many and waits later.
"""

from typing import Protocol

import torch

from bireme.collective.base import Collectives
from bireme.compress.base import Compressor, State
from bireme.compress.error_feedback import ErrorFeedback
from bireme.compress.half import Half
from bireme.errors import UnsupportedError
from bireme.kvstore.base import Key
from bireme.kvstore.pending import Pending
from bireme.types.topology import ReduceOp

__all__ = ("CastExchange", "Exchange", "PlainExchange")


class Exchange(Protocol):
    """Adds a tensor up over the workers, in place."""

    def check(self, key: Key, value: torch.Tensor) -> None:
        """Refuse a value that cannot travel; raises UnsupportedError."""

    def begin(self, key: Key, total: torch.Tensor) -> Pending:
        """Begin; once waited for, the contiguous ``total`` is the sum of every worker's."""

    def forget(self) -> None:
        """Drop what is remembered of earlier sums."""


class PlainExchange:
    """Sends values as they are.

    Args:
        collectives: What connects the workers.
        prefix: Begins the names of its operations.
    """

    def __init__(self, collectives: Collectives, prefix: str) -> None:
        self._collectives = collectives
        self._prefix = prefix

    def check(self, key: Key, value: torch.Tensor) -> None:
        """Take any value."""

    def begin(self, key: Key, total: torch.Tensor) -> Pending:
        """See `Exchange.begin`."""
        name = f"{self._prefix}{key}"
        handle = self._collectives.allreduce([total], names=[name], outs=[total], op=ReduceOp.SUM)

        def finish() -> None:
            handle.wait()

        return Pending(finish, handle.done)

    def forget(self) -> None:
        """There is nothing to drop."""


class CastExchange:
    """Sends values in 16 bits; each worker widens the sum again.

    Within a machine the sum itself is made in float32 and rounded once to 16 bits.

    Args:
        collectives: What connects the workers.
        prefix: Begins the names of its operations.
        compressor: A `Half`, or an `ErrorFeedback` around one, with an error memory for each key.
        store: What the store is called, for errors.

    Raises:
        UnsupportedError: Another compressor: sums of its codes are no codes.
    """

    def __init__(
        self, collectives: Collectives, prefix: str, compressor: Compressor, store: str
    ) -> None:
        code = compressor.quantizer if isinstance(compressor, ErrorFeedback) else compressor
        if not isinstance(code, Half):
            name = getattr(code, "name", type(code).__name__)
            raise UnsupportedError(
                f"a {store!r} store adds up what workers send while it travels, and codes of "
                f"{name} cannot be added; use {{'type': 'fp16'}} or 'bf16' here, or "
                f"kvstore.create('dist_sync') with {name}"
            )
        self._plain = PlainExchange(collectives, prefix)
        self._compressor = compressor
        self._states: dict[Key, State] = {}

    def check(self, key: Key, value: torch.Tensor) -> None:
        """See `Exchange.check`."""
        if key not in self._states:
            self._compressor.init(value.detach())

    def begin(self, key: Key, total: torch.Tensor) -> Pending:
        """See `Exchange.begin`."""
        if key not in self._states:
            self._states[key] = self._compressor.init(total)
        payload, self._states[key] = self._compressor.compress(total, self._states[key])
        under_way = self._plain.begin(key, payload.data)

        def finish() -> None:
            under_way.wait()
            self._compressor.decompress(payload, total)

        return Pending(finish, lambda: under_way.done)

    def forget(self) -> None:
        """Drop the error memories."""
        self._states.clear()
