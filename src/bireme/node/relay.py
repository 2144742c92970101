"""The shell of a relay: a thread beside the first worker of a machine, with links of its own.

Opened by :mod:`bireme.node.boot` in every worker that may have to be one, since others must know
beforehand where it listens; run only where the state machine asks for it.
"""

import logging
import threading
from collections.abc import Callable
from typing import cast

import torch

from bireme.core.actions import OpenRelay
from bireme.core.relay import RelayCore
from bireme.node.egress import egress_for
from bireme.node.memory import Held, tensor_over
from bireme.node.partials import sum_dtype, weighed
from bireme.node.runtime import Runtime
from bireme.transport.base import Buffer, ReceivedFrame, Transport
from bireme.transport.pacing import UNPACED, Pacing
from bireme.transport.pool import BufferPool, PooledBuffer
from bireme.types.dtypes import DType

__all__ = ("Relay", "TorchSums")

_log = logging.getLogger("bireme.node")

_IDLE_BYTES = 64 << 20


class TorchSums:
    """A relay's arithmetic over torch; its bits are those of a server's.

    Args:
        allocate: Makes memory from which frames reach several local workers with the fewest copies.

    Guarantees:
        Those of `bireme.core.gathering.RelaySums`.
    """

    def __init__(self, allocate: Callable[[int], Buffer]) -> None:
        self._allocate = allocate
        # What goes over the network needs no shared memory.
        self._pool = BufferPool(_IDLE_BYTES)

    def first(self, dtype: DType, payload: object, weight: float) -> object:
        """Return ``payload`` times ``weight`` in the type in which ``dtype`` is summed."""
        source = _weighed(dtype, payload, weight)
        buffer = PooledBuffer(self._pool, len(source) * _in_sum_type(dtype).itemsize)
        held = Held(buffer.view, buffer.release)
        _tensor(dtype, held).copy_(source)
        return held

    def add(self, dtype: DType, total: object, payload: object, weight: float) -> object:
        """Return ``total`` plus ``payload`` times ``weight``."""
        source = _weighed(dtype, payload, weight)
        _tensor(dtype, total).add_(source)
        return total

    def merge(self, dtype: DType, one: object, other: object) -> object:
        """Return the sum of two."""
        _tensor(dtype, one).add_(_tensor(dtype, other))
        cast("Held", other).release()
        return one

    def copy(self, payload: object) -> object:
        """Return a handle of the same bytes."""
        view = cast("ReceivedFrame", payload).payload
        buffer = self._allocate(view.nbytes)
        memory = buffer.view[: view.nbytes]
        memory[:] = view
        return Held(memory, buffer.release)

    def sum_itemsize(self, dtype: DType) -> int:
        """Return the bytes of one element of a sum."""
        return _in_sum_type(dtype).itemsize


class Relay:
    """A relay that may be opened.

    Args:
        transport: Listening where the other workers of the machine reach it.
        addresses: Where that is.
        payload_crc: Send a checksum with every payload.
    """

    def __init__(
        self,
        transport: Transport,
        addresses: tuple[str, ...],
        *,
        payload_crc: bool = False,
    ) -> None:
        self.addresses = addresses
        self._transport = transport
        self._pacing = UNPACED
        self._payload_crc = payload_crc
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was asked for."""
        return self._thread is not None

    def pace(self, pacing: Pacing) -> None:
        """Take what is known of this machine's link; before ``open``."""
        self._pacing = pacing
        self._transport.pace(pacing)

    def open(self, action: OpenRelay) -> None:
        """Begin to serve."""
        core = RelayCore(
            action.neighbours,
            action.config,
            action.incarnation,
            action.view,
            TorchSums(self._transport.allocate),
        )
        name = f"relay of {action.neighbours.leader.node}"
        runtime = Runtime(
            core,
            self._transport,
            scheduler="",
            name=name,
            payload_crc=self._payload_crc,
        )
        if self._pacing.bytes_per_s:
            runtime.order(egress_for(self._pacing.bytes_per_s, action.config.slice_bytes))
        self._thread = threading.Thread(
            target=self._run, args=(runtime,), name=f"bireme {name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End it; workers that are left push for themselves. A second call does nothing."""
        self._stopping.set()
        thread = self._thread
        if thread is None:
            self._transport.close()
        elif thread is not threading.current_thread():
            self._transport.wake()
            thread.join()

    def _run(self, runtime: Runtime) -> None:
        try:
            runtime.start()
            while not self._stopping.is_set() and runtime.ended is None:
                runtime.step()
        except Exception:  # the workers go on without it
            _log.exception("a relay failed; the workers of this machine push for themselves")
        finally:
            self._transport.close()


def _in_sum_type(dtype: DType) -> torch.dtype:
    return sum_dtype(getattr(torch, dtype))


def _tensor(dtype: DType, held: object) -> torch.Tensor:
    total = _in_sum_type(dtype)
    view = cast("Held", held).view
    return tensor_over(view, total, view.nbytes // total.itemsize)


def _weighed(dtype: DType, payload: object, weight: float) -> torch.Tensor:
    view = cast("ReceivedFrame", payload).payload
    element = cast("torch.dtype", getattr(torch, dtype))
    source = tensor_over(view, element, view.nbytes // element.itemsize)
    return source if weight == 1.0 else weighed(source.to(sum_dtype(element)), weight)
