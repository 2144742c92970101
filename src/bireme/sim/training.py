"""A small training run for simulated workers, and its straight reference.

Values and gradients are made so that the order of additions shows in the bits. Used by the
scenario tests.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from random import Random

from bireme.core.bunches import Bunch
from bireme.core.calls import (
    BarrierCall,
    Call,
    CommandCall,
    DeclareCall,
    InitCall,
    LeaveCall,
    PullCall,
    PushCall,
    ReadyCall,
    ResumeCall,
)
from bireme.sim.process import Script, User
from bireme.sim.values import pack
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import CommandKind, InitEntry, KeyDecl, KeyPlacement, Start

__all__ = ("Training", "canonical_sum", "gradient", "initial", "reference")

Slot = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A run: every step pushes a gradient of every key and pulls the result.

    Call it with a user and a rank to get the script of a worker.
    """

    num_steps: int = 4
    num_keys: int = 3
    length: int = 5
    """Elements of each key."""
    consistency: Consistency = Consistency.SYNC
    staleness: int = 0
    """Of ``bounded``."""
    pushpull: bool = True
    """One call for both; otherwise a push and a pull, sent together."""
    rate: float | None = -0.1
    """Of the servers' optimizer; ``None`` leaves the sums as they are."""
    change_rate_at: int | None = None
    """The step before which the rate is halved."""
    timeout_s: float = 60.0
    barriers: bool = True
    apart_every: int | None = None
    """Where rank and step sum to a multiple of it, a worker pushes the keys one by one."""
    bunched: bool = False
    """Workers hand in their pushes as one bunch for each server."""
    gradient: "Callable[[Slot, int, int, list[float]], list[float]] | None" = None
    """Of slot, rank, step and value; :func:`gradient` when ``None``."""

    def __call__(self, user: User, rank: int) -> Script:
        """Return the script of a worker."""
        timeout_s = self.timeout_s
        started = yield from _one(ReadyCall(user.number(), timeout_s))
        assert isinstance(started, Start)
        decls = tuple(
            KeyDecl(
                f"key{i}",
                (self.length,),
                DType.FLOAT64,
                consistency=self.consistency,
                staleness=self.staleness,
            )
            for i in range(self.num_keys)
        )
        keys = yield from _one(DeclareCall(user.number(), 0, decls, timeout_s))
        assert isinstance(keys, tuple)
        first = 0
        if started.replacement:
            ids = tuple(key.key_id for key in keys)
            resumed = yield from _one(ResumeCall(user.number(), ids, timeout_s))
            assert isinstance(resumed, dict)
            first = min(resumed.values())
        yield from self._prepare(user, rank, keys, first)
        slots = list(_slots(keys))
        user.bunches = _bunches(keys) if self.bunched else ()
        yield [PullCall(user.number(), tuple(slot for slot, _ in slots), timeout_s)]
        for step in range(first, self.num_steps):
            yield from self._step(user, rank, step, slots)
        yield [LeaveCall(user.number(), timeout_s)]

    def rate_at(self, step: int) -> float | None:
        """Return the optimizer's rate at the beginning of ``step``, before a change there."""
        changed = self.change_rate_at is not None and step > self.change_rate_at
        return self.rate / 2 if changed and self.rate is not None else self.rate

    def _prepare(self, user: User, rank: int, keys: tuple[KeyPlacement, ...], first: int) -> Script:
        if rank == 0:
            entries = tuple(
                (self._init_entry(slot, length), pack(initial(slot, length)))
                for slot, length in _slots(keys)
            )
            yield [InitCall(user.number(), 0, entries, self.timeout_s)]
        rate = self.rate_at(first)
        if rate is not None:
            yield [self._command(user, CommandKind.SET_OPTIMIZER, rate)]
        if self.barriers:
            yield [BarrierCall(user.number(), "ready", self.timeout_s)]

    def _step(self, user: User, rank: int, step: int, slots: list[tuple[Slot, int]]) -> Script:
        if step == self.change_rate_at and self.rate is not None:
            kind = CommandKind.SET_HYPER_PARAMETERS
            yield [self._command(user, kind, self.rate / 2)]
        compute = self.gradient or gradient
        entries = tuple(
            (*slot, *_payload(compute(slot, rank, step, user.values[slot][1])), *_RAW)
            for slot, _ in slots
        )
        apart = self.apart_every is not None and (rank + step) % self.apart_every == 0
        together = [(entry,) for entry in reversed(entries)] if apart else [entries]
        calls: list[Call] = [
            PushCall(user.number(), each, self.timeout_s, want_value=self.pushpull)
            for each in together
        ]
        if self.bunched and not apart:
            payloads = {entry[:2]: entry[2] for entry in entries}
            bunches = tuple(
                (bunch, b"".join(payloads[slot] for slot in bunch.slots)) for bunch in user.bunches
            )
            number = user.number()
            calls = [
                PushCall(number, (), self.timeout_s, want_value=self.pushpull, bunches=bunches)
            ]
        if not self.pushpull:
            pulled = tuple(slot for slot, _ in slots)
            calls.append(PullCall(user.number(), pulled, self.timeout_s))
        yield calls

    def _init_entry(self, slot: Slot, length: int) -> InitEntry:
        return InitEntry(
            *slot,
            DType.FLOAT64,
            length,
            1,
            Layout.DENSE,
            self.consistency,
            8 * length,
            staleness=self.staleness,
        )

    def _command(self, user: User, kind: CommandKind, rate: float) -> Call:
        return CommandCall(user.number(), 0, kind, {"rate": rate}, self.timeout_s)


_RAW = ("raw", Layout.DENSE, 0)


def initial(slot: Slot, length: int) -> list[float]:
    """Return the first value of a slot."""
    random = Random(f"initial {slot}")
    return [random.uniform(-1.0, 1.0) for _ in range(length)]


def gradient(slot: Slot, rank: int, step: int, value: list[float]) -> list[float]:
    """Return a gradient that depends on the value, with numbers of very different size."""
    random = Random(f"gradient {slot} {rank} {step}")
    return [random.uniform(-1.0, 1.0) * 10.0 ** random.randint(-8, 8) + 0.01 * x for x in value]


def reference(
    training: Training,
    num_workers: int,
    slots: dict[Slot, int],
    present: Callable[[int, int], bool] = lambda _step, _rank: True,
) -> dict[Slot, list[float]]:
    """Return the values after an undisturbed synchronous run, computed straight.

    Args:
        training: The run.
        num_workers: Workers.
        slots: Length of each slot.
        present: Whether a rank takes part in a step; the sum is scaled for those that do not.
    """
    values = {slot: initial(slot, length) for slot, length in slots.items()}
    rate, compute = training.rate, training.gradient or gradient
    for step in range(training.num_steps):
        if step == training.change_rate_at and rate is not None:
            rate = rate / 2
        for slot, value in values.items():
            ranks = [rank for rank in range(num_workers) if present(step, rank)]
            grads = {rank: compute(slot, rank, step, value) for rank in ranks}
            total = canonical_sum(num_workers, grads)
            if len(ranks) < num_workers:
                total = [each * num_workers / len(ranks) for each in total]
            if rate is None:
                values[slot] = total
            else:
                values[slot] = [a + rate * b for a, b in zip(value, total, strict=True)]
    return values


def canonical_sum(num_shards: int, parts: dict[int, list[float]]) -> list[float]:
    """Return the sum along the canonical tree, by plain recursion over halves of the shards."""

    def total(first: int, width: int) -> list[float] | None:
        if width == 1:
            return parts.get(first)
        low, high = total(first, width // 2), total(first + width // 2, width // 2)
        if low is None or high is None:
            return low if high is None else high
        return [a + b for a, b in zip(low, high, strict=True)]

    found = total(0, 1 << (num_shards - 1).bit_length())
    assert found is not None
    return found


def _one(call: Call) -> Generator[list[Call], dict[int, object], object]:
    """Make one call and return its result."""
    results = yield [call]
    return results[call.call]


def _payload(numbers: list[float]) -> tuple[bytes, int]:
    packed = pack(numbers)
    return packed, len(packed)


def _bunches(keys: tuple[KeyPlacement, ...]) -> tuple[Bunch, ...]:
    by_server: dict[int, list[tuple[int, int, int]]] = {}
    for key in keys:
        for index, slot in enumerate(key.slots):
            size_bytes = len(pack([0.0] * slot.length))
            by_server.setdefault(slot.server, []).append((key.key_id, index, size_bytes))
    return tuple(Bunch(server, slots) for server, slots in by_server.items())


def _slots(keys: tuple[KeyPlacement, ...]) -> Iterator[tuple[Slot, int]]:
    for key in keys:
        for index, slot in enumerate(key.slots):
            yield (key.key_id, index), slot.length
