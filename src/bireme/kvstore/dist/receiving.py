"""From what the servers send to the caller's tensors."""

from collections.abc import Sequence

import torch

from bireme.kvstore.dist.entry import DistEntry
from bireme.node.tickets import Place, Slot
from bireme.update.layout import lies_plain

__all__ = ("Receipt",)


class Receipt:
    """Where one key's value goes: straight into CPU tensors, by way of one for all others.

    Args:
        entry: The key.
        outs: Dense tensors of its shape, on any devices.
    """

    def __init__(self, entry: DistEntry, outs: Sequence[torch.Tensor]) -> None:
        outs = [out.detach() for out in outs]
        self._direct = [out for out in outs if out.is_cpu and lies_plain(out)]
        self._later = [out for out in outs if not (out.is_cpu and lies_plain(out))]
        self._entry = entry
        self._staged = entry.staging() if not self._direct else None
        self._flats = [out.view(-1) for out in self._direct]
        if self._staged is not None:
            self._flats.append(self._staged)

    def places(self) -> dict[Slot, Place]:
        """Return the place of each slot's value."""
        return {
            span.slot: Place(
                [flat[span.offset : span.offset + span.length] for flat in self._flats]
            )
            for span in self._entry.spans
        }

    def finish(self) -> None:
        """Fill the tensors that were not written directly."""
        torch.autograd.graph.increment_version(self._direct)
        if self._staged is not None:
            source = self._staged.view(self._entry.layout.shape)
        elif self._later:
            source = self._direct[0]
        for out in self._later:
            out.copy_(source)
        if self._staged is not None:
            self._entry.put_back(self._staged)
