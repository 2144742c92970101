"""Times ``local`` and ``device`` against MXNet 1.9.1's ``local``, and against the memory.

Each case is a set of keys on 2, 4 or 8 CPU contexts. One step pushes a gradient per key and
context and pulls the sum to every context ("push+pull"), or does both in one call and in place
("pushpull"). The stores take turns within each round, some 20 ms each; the ratio is the median
over rounds of MXNet's time divided by ours in the same round, so that what else the machine does
hits both, and stands beside its quartiles, which show how quiet the machine was. Same seeds, a
warm-up, and the same number of threads on both sides.

The bound is what the bytes alone would take. Byte model, for a value of S bytes on N contexts:
a push reads N S and writes S, a pull reads S and writes N S, together (2 N + 2) S; an in-place
pushpull reads N S and writes (N + 1) S. Divided by the bandwidth of a copy of 100 MB, counted as
bytes read plus bytes written, measured in every round: the better of torch's copy and one that
writes past the cache, which makes the bound stricter. "of bound" is the median of paired ratios
too. Sets of keys that fit the processor's cache can beat it.

Usage::

    python benchmarks/bench_local_store.py --mxnet-python /path/to/mxnet/bin/python
"""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bireme import kvstore
from bireme.kvstore.reduce import HostReducer, Sum
from mxnet_peer import Peer, ensure_mxnet

KB, MB = 1_000, 1_000_000
SEED = 20
OURS = ("local", "device")
TARGET_S = 0.02
BUDGET_S = 4.0
ROUNDS = range(15, 61)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """A set of keys."""

    name: str
    sizes_bytes: tuple[int, ...]
    shared_outs: bool = False
    """Whether pulls go back into the gradients, to save memory."""

    dtype: str = "float32"

    def shapes(self) -> list[int]:
        """Return the number of elements of each key."""
        return [size // DTYPES[self.dtype].itemsize for size in self.sizes_bytes]


def geometric(low: int, high: int, count: int) -> tuple[int, ...]:
    """Return ``count`` sizes from ``low`` to ``high``, each the same factor above the last."""
    factor = (high / low) ** (1 / (count - 1))
    return tuple(round(low * factor**step / 4) * 4 for step in range(count))


FULL = (
    Case("100 x 1 KB", (KB,) * 100),
    Case("100 x 40 KB", (40 * KB,) * 100),
    Case("100 x 400 KB", (400 * KB,) * 100),
    Case("1 x 1 MB", (MB,)),
    Case("20 x 4 MB", (4 * MB,) * 20),
    Case("1 x 40 MB", (40 * MB,)),
    Case("1 x 100 MB", (100 * MB,)),
    Case("100 from 1 KB to 40 MB", geometric(KB, 40 * MB, 100), shared_outs=True),
    Case("1 x 40 MB float16", (40 * MB,), dtype="float16"),
    Case("1 x 40 MB bfloat16", (40 * MB,), dtype="bfloat16"),
)
QUICK = (FULL[1], FULL[5])


class Ours:
    """One of our stores with the tensors of a case."""

    def __init__(self, kind: str, case: Case, values: list, outs: list) -> None:
        self.keys = list(range(len(case.sizes_bytes)))
        self.values, self.outs = values, outs
        self.store = kvstore.create(kind)
        dtype = DTYPES[case.dtype]
        self.store.init(self.keys, [torch.zeros(shape, dtype=dtype) for shape in case.shapes()])

    def step(self, op: str, repeats: int) -> float:
        """Return the seconds of one step, the mean of ``repeats``."""
        started_s = time.perf_counter()
        for _ in range(repeats):
            if op == "push+pull":
                self.store.push(self.keys, self.values)
                self.store.pull(self.keys, self.outs)
            else:
                self.store.pushpull(self.keys, self.values)
        return (time.perf_counter() - started_s) / repeats


class Copy:
    """Copies of 100 MB, which say how fast the memory is now."""

    def __init__(self) -> None:
        self.source, self.target = torch.ones(25 * MB), torch.ones(25 * MB)
        self.reducer = HostReducer()

    def bytes_per_s(self) -> float:
        """Return bytes read plus bytes written in a second by the faster of two copies."""
        job = Sum("copy", [self.source], [self.target])
        copies = (lambda: self.target.copy_(self.source), lambda: self.reducer.run([job]))
        return 2 * self.source.nbytes / min(seconds_of(copy) for copy in copies)


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def touched_bytes(case: Case, op: str, num_contexts: int) -> int:
    """Return what the byte model says one step moves."""
    factor = 2 * num_contexts + (2 if op == "push+pull" else 1)
    return factor * sum(case.sizes_bytes)


def tensors(case: Case, num_contexts: int) -> tuple[list, list]:
    """Return gradients and outs by key and context."""
    generator = torch.Generator().manual_seed(SEED)
    dtype, contexts = DTYPES[case.dtype], range(num_contexts)
    values = [
        [torch.rand(shape, generator=generator).to(dtype) for _ in contexts]
        for shape in case.shapes()
    ]
    if case.shared_outs:
        return values, values
    return values, [[torch.zeros(shape, dtype=dtype) for _ in contexts] for shape in case.shapes()]


def measure(
    steps: dict[str, Callable[[str, int], float]], copy: Copy, op: str, rounds: int | None
) -> tuple[dict[str, list[float]], list[float]]:
    """Return seconds by store and the memory's speed, one of each per round."""
    slowest_s = max(step(op, 2) for step in steps.values())
    repeats = max(1, min(50, round(TARGET_S / slowest_s)))
    if rounds is None:
        fitting = round(BUDGET_S / (len(steps) * repeats * slowest_s))
        rounds = min(max(fitting, ROUNDS[0]), ROUNDS[-1])
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    speeds = []
    for number in range(rounds):
        # Another one begins each round, so that none always runs in the other's wake.
        order = list(steps)[number % len(steps) :] + list(steps)[: number % len(steps)]
        for name in order:
            seconds[name].append(steps[name](op, repeats))
        speeds.append(copy.bytes_per_s())
    return seconds, speeds


def empty_table(case: Case) -> Table:
    """Return the table of one case."""
    table = Table(title=case.name)
    for name in ("contexts", "step", "MXNet"):
        table.add_column(name, justify="right")
    for kind in OURS:
        for name in (kind, "ratio", "of bound"):
            table.add_column(name, justify="right")
    return table


def report(
    table: Table,
    labels: Sequence[str],
    seconds: dict[str, list[float]],
    bounds_s: Sequence[float],
) -> None:
    """Add one row."""
    theirs = seconds.get("mxnet")
    row = [*labels, f"{statistics.median(theirs) * 1e3:.2f}" if theirs else "-"]
    for kind in OURS:
        ours = seconds[kind]
        of_bound = statistics.median(b / o for b, o in zip(bounds_s, ours, strict=True))
        row += [f"{statistics.median(ours) * 1e3:.2f}"]
        row += [described([t / o for t, o in zip(theirs, ours, strict=True)] if theirs else [])]
        row += [f"{100 * of_bound:.0f} %"]
    table.add_row(*row)


def described(ratios: Sequence[float]) -> str:
    """Return the median with its quartiles."""
    if len(ratios) < 2:
        return "-"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def run_case(peer: Peer, table: Table, case: Case, num_contexts: int, rounds: int | None) -> None:
    """Time one case with all stores and add its rows."""
    values, outs = tensors(case, num_contexts)
    steps = {kind: Ours(kind, case, values, outs).step for kind in OURS}
    # MXNet's bfloat16 arrays cannot be added on the CPU.
    if case.dtype != "bfloat16":
        peer.ask(
            "setup",
            shapes=case.shapes(),
            dtype=case.dtype,
            num_contexts=num_contexts,
            shared_outs=case.shared_outs,
            seed=SEED,
        )
        steps["mxnet"] = lambda op, repeats: peer.run("step", op=op, repeats=repeats)
    copy = Copy()
    for op in ("push+pull", "pushpull"):
        seconds, speeds = measure(steps, copy, op, rounds)
        touched = touched_bytes(case, op, num_contexts)
        bounds_s = [touched / speed for speed in speeds]
        report(table, (str(num_contexts), op), seconds, bounds_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases and print a table of each as soon as it is done."""
    parser = argparse.ArgumentParser(description="Local stores against MXNet 1.9.1.")
    parser.add_argument("--mxnet-python", help="interpreter that imports MXNet 1.9.1")
    parser.add_argument("--quick", action="store_true", help="two cases, few rounds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--contexts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of cases")
    parser.add_argument("--rounds", type=int, help="rounds per case; default: what 4 s allow")
    arguments = parser.parse_args(argv)
    rounds = arguments.rounds or (5 if arguments.quick else None)
    torch.set_num_threads(arguments.threads)
    console = Console(width=150)
    console.print(f"one step in ms, {arguments.threads} threads, medians (quartiles) of rounds")
    console.print("ratio: MXNet's time over ours, above 1 is faster than MXNet")
    console.print(f"memory: {Copy().bytes_per_s() / 1e9:.0f} GB/s, read plus written, in a copy")
    program = Path(__file__).with_name("mxnet_local.py")
    with Peer(ensure_mxnet(arguments.mxnet_python), program, num_threads=arguments.threads) as peer:
        cases = QUICK if arguments.quick else FULL
        for case in cases:
            if not any(part in case.name for part in arguments.only):
                continue
            table = empty_table(case)
            for num_contexts in arguments.contexts:
                run_case(peer, table, case, num_contexts, rounds)
                gc.collect()
            console.print(table, f"load average {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
