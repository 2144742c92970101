"""Collectives between several machines: shared memory inside each, Gloo between them.

Where adding up or copying is concerned every byte crosses a machine's link once, however many ranks
the machine has. A tensor is cut into runs, one for each *lead*: rank j of every machine leads run
j, so that ranks share the network's work. There are as many leads as the smallest machine has
ranks. What gains nothing from this goes straight over Gloo.
Called by `BiremeProcessGroup`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from bireme.collective.bank import moving, reducing
from bireme.collective.bank.bank import Bank
from bireme.collective.bank.elements import Reduction
from bireme.collective.network import Network, check_network
from bireme.errors import BiremeError, RankLost, WaitTimeout

__all__ = ("Hierarchy", "Notes")

PIECE_BYTES = 8 << 20
"""The network carries one such piece while this machine reduces the next."""
SMALL_BYTES = 1 << 16
"""Up to here one lead does it all: fewer messages count for more than shared work."""
_KEY = "ended"
_NOTE_S = 1.0
"""How long to wait for somebody else to say which rank was lost."""


class Notes:
    """Why a group has ended, told between machines through its store.

    Args:
        store: The group's.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def read(self) -> str:
        """Return the reason; empty as long as there is none."""
        # The process that holds the store may be what died.
        with suppress(RuntimeError):
            if self._store.check([_KEY]):
                reason: str = self._store.get(_KEY).decode()
                return reason
        return ""

    def await_reason(self, limit_s: float) -> str:
        """Return the reason as soon as there is one; empty if there is none within the limit."""
        with suppress(RuntimeError):
            self._store.wait([_KEY], timedelta(seconds=limit_s))
        return self.read()

    def write(self, reason: str) -> None:
        """Leave a reason, unless somebody was first."""
        if not self.read():
            with suppress(RuntimeError):
                self._store.set(_KEY, reason)

    def check(self) -> None:
        """Raise `RankLost` if there is a reason."""
        if reason := self.read():
            raise RankLost(reason)


class Hierarchy:
    """See `Exchange`.

    Args:
        bank: This machine's.
        machines: The group's ranks on each machine, each in order; the same on every rank.
        lead: The network between the leads of the run that this rank leads, if it leads one.
        flat: Makes the network between all ranks, when first needed.
        notes: Where the reason of the group's end is left for other machines.
    """

    def __init__(
        self,
        bank: Bank,
        machines: Sequence[Sequence[int]],
        lead: Network | None,
        flat: Callable[[], Network],
        notes: Notes,
    ) -> None:
        self._bank = bank
        self._machines = machines
        self._num_leads = min(map(len, machines))
        self._size = sum(map(len, machines))
        self._machine = next(i for i, each in enumerate(machines) if bank.names[0] in each)
        self._lead = lead
        self._make_flat = flat
        self._flat_network: Network | None = None
        self.notes = notes

    @property
    def many(self) -> None:
        """See `Exchange`."""

    def all_reduce(self, tensor: Tensor, op: Reduction, timeout_s: float) -> None:
        """See `Exchange`."""
        self._bank.elements(tensor.dtype, op)
        add = Reduction.SUM if op is Reduction.AVG else op
        check_network(tensor.dtype, add)
        deadline_s = time.monotonic() + timeout_s
        if tensor.nbytes <= SMALL_BYTES:
            self._reduce_small(tensor, add, deadline_s)
        else:
            self._reduce_pieces(tensor.view(-1), add, deadline_s)
        if op is Reduction.AVG:
            elements = self._bank.elements(tensor.dtype)
            elements.divide(elements.of(tensor), self._size)

    def _reduce_small(self, tensor: Tensor, op: Reduction, deadline_s: float) -> None:
        reducing.all_reduce(self._bank, tensor, op, _left(deadline_s))
        if self._bank.rank == 0:
            with self._across("all_reduce") as lead:
                lead.all_reduce(tensor, op, _left(deadline_s))()
        if self._bank.size > 1:
            moving.broadcast(self._bank, tensor, 0, _left(deadline_s))

    def _reduce_pieces(self, flat: Tensor, op: Reduction, deadline_s: float) -> None:
        under_way: deque[tuple[list[Tensor], Callable[[], None] | None]] = deque()
        # Where every machine has one rank there is nothing to add up meanwhile.
        is_alone = self._size == len(self._machines)
        length = flat.numel() if is_alone else PIECE_BYTES // flat.element_size()
        for piece in torch.split(flat, length):
            runs = self._runs(piece)
            own = runs[self._bank.rank]
            if self._bank.size > 1:
                reducing.reduce_scatter(self._bank, runs, own, op, _left(deadline_s))
            finish = None
            if own.numel():
                with self._across("all_reduce") as lead:
                    finish = lead.all_reduce(own, op, _left(deadline_s))
            under_way.append((runs, finish))
            if len(under_way) > 1:
                self._finish(*under_way.popleft(), deadline_s)
        while under_way:
            self._finish(*under_way.popleft(), deadline_s)

    def _finish(
        self, runs: list[Tensor], finish: Callable[[], None] | None, deadline_s: float
    ) -> None:
        if finish is not None:
            with self._across("all_reduce"):
                finish()
        self._share(runs, deadline_s)

    def _share(self, runs: list[Tensor], deadline_s: float) -> None:
        """Give what the leads hold to this machine's other ranks."""
        if self._bank.size > 1:
            moving.all_gather(self._bank, runs[self._bank.rank], runs, _left(deadline_s))

    def _runs(self, flat: Tensor) -> list[Tensor]:
        """Cut a tensor into one run for each rank of this machine; only leads' have elements."""
        cuts = reducing.cut(flat.numel(), self._num_leads)
        cuts += [(flat.numel(), flat.numel())] * (self._bank.size - len(cuts))
        return [flat[start:stop] for start, stop in cuts]

    def reduce(self, tensor: Tensor, root: int, op: Reduction, timeout_s: float) -> None:
        """See `Exchange`."""
        is_root = self._bank.names[self._bank.rank] == root
        result = tensor if is_root else tensor.clone()
        self.all_reduce(result, op, timeout_s)

    def reduce_scatter(
        self, inputs: Sequence[Tensor], output: Tensor, op: Reduction, timeout_s: float
    ) -> None:
        """See `Exchange`."""
        whole = torch.cat([each.view(-1) for each in inputs])
        self.all_reduce(whole, op, timeout_s)
        rank = self._bank.names[self._bank.rank]
        start = sum(each.numel() for each in inputs[:rank])
        output.view(-1).copy_(whole[start : start + output.numel()])

    def broadcast(self, tensor: Tensor, root: int, timeout_s: float) -> None:
        """See `Exchange`."""
        deadline_s = time.monotonic() + timeout_s
        source = next(i for i, ranks in enumerate(self._machines) if root in ranks)
        if self._machine == source and self._bank.size > 1:
            moving.broadcast(self._bank, tensor, self._bank.names.index(root), _left(deadline_s))
        runs = self._runs(_as_bytes(tensor))
        own = runs[self._bank.rank]
        if own.numel():
            with self._across("broadcast") as lead:
                lead.broadcast(own, source, _left(deadline_s))
        if self._machine != source:
            self._share(runs, deadline_s)

    def all_gather(self, source: Tensor, outputs: Sequence[Tensor], timeout_s: float) -> None:
        """See `Exchange`."""
        deadline_s = time.monotonic() + timeout_s
        mine = self._machines[self._machine]
        moving.all_gather(self._bank, source, [outputs[r] for r in mine], _left(deadline_s))
        # What each machine's ranks have, as one run of bytes; all ranks know all sizes.
        raws = [[_as_bytes(outputs[rank]) for rank in ranks] for ranks in self._machines]
        lengths, place = [sum(raw.numel() for raw in each) for each in raws], self._machine
        whole = torch.empty(len(raws), max(lengths), dtype=torch.uint8)
        torch.cat(raws[place], out=whole[place][: lengths[place]])
        runs = [self._runs(row) for row in whole]
        own = [each[self._bank.rank] for each in runs]
        if own[0].numel():
            with self._across("all_gather") as lead:
                lead.all_gather(own[place].clone(), own, _left(deadline_s))
        for machine in range(len(raws)):
            if machine != place:
                self._share(runs[machine], deadline_s)
                start = 0
                for raw in raws[machine]:
                    raw.copy_(whole[machine][start : start + raw.numel()])
                    start += raw.numel()

    def gather(
        self, source: Tensor, outputs: Sequence[Tensor] | None, root: int, timeout_s: float
    ) -> None:
        """See `Exchange`."""
        with self._flat("gather") as flat:
            flat.gather(source, outputs, root, timeout_s)

    def scatter(
        self, inputs: Sequence[Tensor] | None, output: Tensor, root: int, timeout_s: float
    ) -> None:
        """See `Exchange`."""
        with self._flat("scatter") as flat:
            flat.scatter(inputs, output, root, timeout_s)

    def all_to_all(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        timeout_s: float,
        *,
        are_equal: bool,
    ) -> None:
        """See `Exchange`."""
        with self._flat("all_to_all") as flat:
            flat.all_to_all(inputs, outputs, timeout_s)

    def barrier(self, timeout_s: float) -> None:
        """See `Exchange`."""
        self.all_reduce(torch.zeros(1), Reduction.SUM, timeout_s)

    @contextmanager
    def _across(self, what: str) -> Iterator[Network]:
        """Translate what Gloo says of the network between leads."""
        assert self._lead is not None
        with self._translated(what):
            yield self._lead

    @contextmanager
    def _flat(self, what: str) -> Iterator[Network]:
        with self._translated(what):
            if self._flat_network is None:
                self._flat_network = self._make_flat()
            yield self._flat_network

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, BiremeError):
                raise
            text = f"{what}: {str(error).partition('. ')[0]}"
            if "imed out" in text:
                message = f"{text}: ranks of another machine did not take part in time"
                raise WaitTimeout(message) from error
            message = self._note() or f"{text}: a rank of another machine ended"
            raise RankLost(message) from error

    def _note(self) -> str:
        """Return what another machine has said of a lost rank, if it says so soon."""
        return self.notes.await_reason(_NOTE_S)

    def give_up(self, reason: str) -> None:
        """See `Exchange`."""
        self.notes.write(reason.removeprefix("RankLost: "))
        self._bank.steps.cancel(reason)
        self._close_networks()

    def close(self) -> None:
        """See `Exchange`."""
        self._bank.close()
        self._close_networks()

    def _close_networks(self) -> None:
        for network in (self._lead, self._flat_network):
            if network is not None:
                network.close()


def _left(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.001)


def _as_bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().view(-1)
    return flat if flat.dtype is torch.uint8 else flat.view(torch.uint8)
