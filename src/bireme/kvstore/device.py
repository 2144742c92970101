"""The ``device`` store: each key lives and is summed on one of the devices that push it."""

import threading
from collections.abc import Mapping, Sequence

from bireme.compress.base import Compressor
from bireme.compress.factory import create
from bireme.kvstore.base import Key
from bireme.kvstore.calls import Push
from bireme.kvstore.entry import Entry
from bireme.kvstore.placement import balance
from bireme.kvstore.reduce import CompressedReducer, DeviceReducer, HostReducer
from bireme.kvstore.single import SingleProcessStore

__all__ = ("DeviceStore",)


class DeviceStore(SingleProcessStore):
    """Sums on the devices that compute, from peer to peer where that is possible.

    A key is given a home when it is first pushed from several devices, so that every device
    holds about the same number of bytes.

    Args:
        name: What :attr:`type` says: ``device`` or one of its other names.

    Example:
        >>> import torch
        >>> with DeviceStore() as store:
        ...     store.init("weight", torch.zeros(2))
        ...     store.pushpull("weight", [torch.ones(2), torch.ones(2)])
        ...     store.pull("weight")
        tensor([2., 2.])

    Source:
        MXNet 1.9 ``src/kvstore/comm.h``, ``CommDevice``.
    """

    def __init__(self, name: str = "device") -> None:
        super().__init__(name, DeviceReducer(HostReducer()))
        self._homes: dict[Key, int] = {}
        self._placing = threading.Lock()

    def home(self, key: Key) -> int | None:
        """Return the position, in the list of values, of the device that holds ``key``.

        ``None`` until a push came from several devices.
        """
        return self._homes.get(key)

    def set_gradient_compression(
        self, compression: Mapping[str, object] | Compressor | None
    ) -> None:
        """Compress what is pushed from now on; ``None`` switches compression off.

        Values given to ``init`` and row-sparse values are never compressed. Every change, and
        switching off, drops what earlier pushes left behind as residuals.
        """
        compressor = create(compression)
        adder = self._copier
        if compressor is not None:
            adder = CompressedReducer(self._copier, compressor)
        with self._holding.everything():
            self._adder = adder

    def _settle(self, pushes: Sequence[Push[Entry]]) -> None:
        for push in pushes:
            entry, num_devices = push.entry, len(push.values)
            if num_devices > 1 and entry.key not in self._homes:
                self._place(num_devices)
            if entry.value.is_cpu and push.values[0].is_cpu:
                continue
            if entry.value.device not in [value.device for value in push.values]:
                position = min(self._homes.get(entry.key, 0), num_devices - 1)
                entry.move(push.values[position].device)

    def _place(self, num_devices: int) -> None:
        with self._placing:
            entries = {entry.key: entry for entry in self._table.all()}
            homeless = {
                key: entry.layout.size_bytes
                for key, entry in entries.items()
                if key not in self._homes
            }
            load_bytes = [0] * max(num_devices, 1 + max(self._homes.values(), default=0))
            for key, position in self._homes.items():
                load_bytes[position] += entries[key].layout.size_bytes
            self._homes |= balance(homeless, load_bytes[:num_devices])
