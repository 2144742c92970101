"""The ``local`` store: values live and are summed on the CPU."""

from collections.abc import Mapping, Sequence

import torch

from bireme.compress.base import Compressor
from bireme.errors import UnsupportedError
from bireme.kvstore.calls import Push
from bireme.kvstore.entry import Entry
from bireme.kvstore.reduce import HostReducer
from bireme.kvstore.single import SingleProcessStore

__all__ = ("LocalStore",)


class LocalStore(SingleProcessStore):
    """Sums on the CPU, whatever devices the values come from.

    Args:
        name: What :attr:`type` says: ``local`` or one of its other names.

    Example:
        >>> with LocalStore() as store:
        ...     store.init("weight", torch.zeros(2))
        ...     store.push("weight", [torch.ones(2), torch.ones(2)])
        ...     store.pull("weight")
        tensor([2., 2.])

    Source:
        MXNet 1.9 ``src/kvstore/kvstore_local.h`` with ``CommCPU``.
    """

    def __init__(self, name: str = "local") -> None:
        super().__init__(name, HostReducer())

    def set_gradient_compression(
        self, compression: Mapping[str, object] | Compressor | None
    ) -> None:
        """Refuse: nothing travels in this store, so there is nothing to save.

        Raises:
            UnsupportedError: Unless ``compression`` is ``None``.
        """
        self._holding.refuse_closed()
        if compression is not None:
            raise UnsupportedError(
                f"a {self.type!r} store does not compress; use kvstore.create('device')"
            )

    def _settle(self, pushes: Sequence[Push[Entry]]) -> None:
        host = torch.device("cpu")
        for push in pushes:
            push.entry.move(host)
