"""Times the compressors beside MXNet 1.9.1's own 2bit code, on the same gradient, in turns.

    python benchmarks/bench_compress.py

Each round times one pass of ours and the same pass of MXNet's, the first of the two changing from
round to round, and the table shows medians. The ratio, MXNet's time by ours, is the median of the
rounds' ratios, so that a slow moment of the machine, which hits neighbours alike, cancels. MXNet's
pass is a direct call of its ``GradientCompression`` (see ``mxnet_compress.py``) on its engine,
with as many OpenMP threads as we use; for "add" it is that and an addition, as its stores do it.
At the end payload, residual and result of both sides must be the same bytes.

"MB" is what our pass cannot avoid reading and writing, "GB/s" how fast it did, and "copy" how fast
a plain copy of the gradient ran in the same rounds. "x copy" says how many times longer our pass
takes than a copy of as many bytes would: near 1 it is at the limit of the machine's memory.

Both sides compress the same gradient in every round, so the residuals go on changing and codes of
all three kinds are mixed, which is the common case and costs MXNet mispredicted branches. With
``--threshold 5`` nearly all codes are 0, the case that suits MXNet best.
"""

import argparse
import functools
import os
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from bireme.compress import Compressor, create
from mxnet_peer import Peer, PeerError, ensure_mxnet

_PROGRAM = Path(__file__).with_name("mxnet_compress.py")
_WARM_UP_ROUNDS = 3


class Key:
    """One of our compressors with the arrays of one key.

    Args:
        kind: A ``type`` of :func:`bireme.compress.create`.
        grad: The gradient; every call of :meth:`compress` takes this one.
        threshold: Of 1bit and 2bit.
    """

    def __init__(self, kind: str, grad: torch.Tensor, threshold: float) -> None:
        coded = kind in ("1bit", "2bit")
        params = {"type": kind} | ({"threshold": threshold} if coded else {})
        compressor = create(params)
        assert isinstance(compressor, Compressor)
        self.compressor = compressor
        self.grad = grad
        self.state = compressor.init(grad)
        self.payload, self.state = compressor.compress(grad, self.state)
        if self.state is not None:
            self.state.zero_()
        self.out = torch.zeros_like(grad)
        self.total = torch.zeros_like(grad)

    def compress(self) -> None:
        self.payload, self.state = self.compressor.compress(self.grad, self.state)

    def decompress(self) -> None:
        self.compressor.decompress(self.payload, self.out)

    def add(self) -> None:
        self.compressor.decompress(self.payload, self.total, accumulate=True)

    def bytes_touched(self, name: str) -> int:
        """Return what the pass ``name`` cannot avoid reading and writing."""
        whole = self.grad.numel() * 4
        state = 0 if self.state is None else 2 * whole
        times = {"compress": whole + state, "decompress": whole, "add": 2 * whole}
        return times[name] + self.payload.size_bytes

    def digest(self) -> dict[str, int]:
        assert self.state is not None
        arrays = {"data": self.payload.data, "residual": self.state, "out": self.out}
        return {name: zlib.crc32(array.numpy().tobytes()) for name, array in arrays.items()}


@dataclass(frozen=True)
class Timing:
    """Seconds of one pass and of a copy, round by round; ``theirs`` is empty without a peer."""

    ours: list[float]
    theirs: list[float]
    copies: list[float]

    def over_mxnet(self) -> float:
        """Return how many times longer MXNet takes."""
        return _median_ratio(self.theirs, self.ours)

    def over_copy(self) -> float:
        """Return how many times longer we take than the copy."""
        return _median_ratio(self.ours, self.copies)


def _median_ratio(numerators: list[float], denominators: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def _seconds(run: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    run()
    return time.perf_counter() - start_s


def in_turns(
    ours: Callable[[], None],
    theirs: Callable[[], float] | None,
    copy: Callable[[], object],
    num_rounds: int,
) -> Timing:
    """Time all sides ``num_rounds`` times, after some rounds of warm-up."""
    timing = Timing([], [], [])
    for index in range(_WARM_UP_ROUNDS + num_rounds):
        if theirs and index % 2:
            timing.theirs.append(theirs())
        timing.ours.append(_seconds(ours))
        if theirs and not index % 2:
            timing.theirs.append(theirs())
        timing.copies.append(_seconds(copy))
    for column in (timing.ours, timing.theirs, timing.copies):
        del column[:_WARM_UP_ROUNDS]
    return timing


def add_rows(table: Table, key: Key, peer: Peer | None, num_rounds: int) -> None:
    """Time the three passes of ``key``, beside ``peer`` if there is one, and show them."""
    target = torch.empty_like(key.grad)
    copied = 2 * key.grad.numel() * key.grad.element_size()
    for run in (key.compress, key.decompress, key.add):
        name = run.__name__
        theirs = functools.partial(peer.run, name) if peer else None
        timing = in_turns(run, theirs, lambda: target.copy_(key.grad), num_rounds)
        touched = key.bytes_touched(name)
        table.add_row(
            key.compressor.name,
            name,
            f"{statistics.median(timing.ours) * 1e3:.2f}",
            f"{statistics.median(timing.theirs) * 1e3:.2f}" if peer else "-",
            f"{timing.over_mxnet():.1f}" if peer else "-",
            f"{touched / 1e6:.1f}",
            f"{touched / statistics.median(timing.ours) / 1e9:.1f}",
            f"{copied / statistics.median(timing.copies) / 1e9:.1f}",
            f"{timing.over_copy() * copied / touched:.2f}",
        )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--mxnet-python", metavar="PATH", help="interpreter with MXNet 1.9.1")
    parser.add_argument("--numel", type=int, default=10_000_000, help="elements of the gradient")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each side")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threshold", type=float, default=0.5)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    random = np.random.default_rng(args.seed)
    grad = torch.from_numpy(random.normal(0.0, 0.3, args.numel).astype(np.float32))
    key = Key("2bit", grad, args.threshold)
    title = f"{args.numel:,} float32, {args.threads} threads, medians of {args.rounds} rounds"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("type", "pass"):
        table.add_column(column, no_wrap=True)
    for column in ("ours ms", "MXNet ms", "ratio", "MB", "GB/s", "copy", "x copy"):
        table.add_column(column, no_wrap=True, justify="right")
    python = ensure_mxnet(args.mxnet_python)
    with Peer(python, _PROGRAM, num_threads=args.threads) as peer:
        peer.ask("prepare", seed=args.seed, numel=args.numel, threshold=args.threshold)
        add_rows(table, key, peer, args.rounds)
        identical = key.digest() == peer.ask("digest")
    for kind in ("1bit", "fp16", "bf16"):
        add_rows(table, Key(kind, grad, args.threshold), None, args.rounds)
    console = Console()
    console.print(table)
    console.print(f"payload, residual and result as MXNet's: {'yes' if identical else 'NO'}")
    return 0 if identical else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PeerError as error:
        sys.exit(f"bench_compress: {error}")
