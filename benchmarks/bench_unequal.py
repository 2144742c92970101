"""Times training steps of two workers, one of them at half speed: three ways to divide a batch.

*Equal* portions, *auto* (``work_load_list="auto"``, from equal ones on), and *ideal*: fixed
portions from speeds that were measured before, each worker computing batches of several sizes by
itself. All three train in one job and take turns in short rounds, so that what else the machine
does hits all; ratios are medians over rounds of two times of the same round.

The slow worker gets half of the CPU time of one core, by the kernel's quota (the ``cpu`` control
group, which needs root), or else shares its core with another process that never sleeps.

Usage::

    python benchmarks/bench_unequal.py
    python benchmarks/bench_unequal.py --slowness competitor --kv-store dist_sync_device
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import bireme
from bireme.balance.portions import Limits
from bireme.data import BalancedBatchSampler

NUM_SAMPLES = 4096
MODES = ("equal", "auto", "ideal")
PERIOD_US = 4000
GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
SLOW = 1
"""The rank of the slow worker."""


def make_net() -> nn.Module:
    """Return a small convolutional network for images of 28 x 28."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


class Worker:
    """One worker's training, in all three ways."""

    def __init__(self, store: Any, batch_size: int) -> None:
        self.store, self.batch_size = store, batch_size
        self.net = make_net()
        self.trainer = bireme.Trainer(
            self.net, torch.optim.SGD(self.net.parameters(), lr=0.01), store
        )
        draws = torch.Generator().manual_seed(1)
        self.x = torch.randn(NUM_SAMPLES, 1, 28, 28, generator=draws)
        self.y = torch.randint(0, 10, (NUM_SAMPLES,), generator=draws)
        self.samplers: dict[str, BalancedBatchSampler] = {}
        self.passes: dict[str, Iterator[list[int]]] = {}

    def compute(self, indices: Any) -> None:
        self.trainer.zero_grad()
        nn.functional.cross_entropy(self.net(self.x[indices]), self.y[indices]).backward()

    def time_for(self, samples: int, repeats: int) -> float:
        """Return the median of the seconds that this worker takes for ``samples``."""
        found = []
        for _ in range(repeats):
            start_s = time.perf_counter()
            self.compute(slice(0, samples))
            found.append(time.perf_counter() - start_s)
        return statistics.median(found)

    def lines(self, repeats: int) -> list[tuple[float, float]]:
        """Return ``(a, c)`` of each worker, all measuring at the same time."""
        sizes = [self.batch_size // part for part in (8, 4, 2)] + [3 * self.batch_size // 4]
        self.time_for(self.batch_size // 2, 3)
        self.store.barrier()
        times = torch.tensor([self.time_for(size, repeats) for size in sizes]).double()
        b = torch.tensor(sizes).double()
        slope = ((b - b.mean()) * (times - times.mean())).sum() / ((b - b.mean()) ** 2).sum()
        mine = torch.zeros(self.store.num_workers, 2).double()
        mine[self.store.rank] = torch.stack([(times.mean() - slope * b.mean()).clamp(min=0), slope])
        return [tuple(row) for row in self.store.sum_over_workers("lines", mine).tolist()]

    def prepare(self, name: str, work_load_list: Any) -> None:
        self.samplers[name] = BalancedBatchSampler(
            NUM_SAMPLES,
            self.batch_size,
            self.store.num_workers,
            self.store.rank,
            work_load_list=work_load_list,
            drop_last=True,
        )
        self.passes[name] = iter(())

    def run(self, name: str, steps: int) -> list[float]:
        """Train for some steps; return the seconds of each."""
        sampler = self.samplers[name]
        self.trainer.balance(sampler)
        self.store.barrier()
        found, last_s = [], time.perf_counter()
        while len(found) < steps:
            indices = next(self.passes[name], None)
            if indices is None:
                sampler.set_epoch(sampler.epoch + 1)
                self.passes[name] = iter(sampler)
                continue
            self.compute(indices)
            self.trainer.step()
            now_s = time.perf_counter()
            found.append(now_s - last_s)
            last_s = now_s
        return found


def work(args: argparse.Namespace) -> None:
    """Be one process of the job."""
    torch.set_num_threads(1)
    bireme.run_role()
    with bireme.kvstore.create(args.kv_store) as store:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[store.rank % len(cores)]})
        with contextlib.ExitStack() as stack:
            if store.rank == SLOW:
                stack.enter_context(slowed(args.group))
            store.barrier()
            result = measure(Worker(store, args.batch_size), args)
            store.barrier()
        if store.rank == 0:
            Path(args.out).write_text(json.dumps(result))


def measure(worker: Worker, args: argparse.Namespace) -> dict[str, Any]:
    lines = worker.lines(args.steps)
    size, count = args.batch_size, worker.store.num_workers
    ideal = Limits(size, 1, (size,) * count).cut(size, lines, [True] * count)
    for name, loads in zip(MODES, (None, "auto", ideal), strict=True):
        worker.prepare(name, loads)
    first = {name: worker.run(name, args.warmup) for name in MODES}
    rounds: dict[str, list[float]] = {name: [] for name in MODES}
    sizes: list[tuple[int, ...]] = []
    for turn in range(args.rounds):
        for place in range(len(MODES)):
            name = MODES[(turn + place) % len(MODES)]
            rounds[name].append(statistics.median(worker.run(name, args.steps)))
        sizes.append(worker.samplers["auto"].sizes)
    return {"lines": lines, "ideal": ideal, "first": first, "rounds": rounds, "sizes": sizes}


@contextlib.contextmanager
def slowed(group: str | None) -> Iterator[None]:
    """Halve the speed of this process, to its end or that of the context."""
    if group is not None:
        (Path(group) / "slow" / "cgroup.procs").write_text(str(os.getpid()))
        yield
        return
    rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        rival.kill()
        rival.wait()


@contextlib.contextmanager
def groups() -> Iterator[Path | None]:
    """Make a control group for the job with a slow part, and be in it; ``None`` without rights.

    The job weighs much, so that other processes of this machine disturb it less.
    """
    root = next((root for root in GROUPS if (root / "cgroup.procs").exists()), None)
    home = Path(str(root)) / f"bireme-unequal-{os.getpid()}"
    made: list[Path] = []
    try:
        for path in (home, home / "rest", home / "slow"):
            path.mkdir()
            made.append(path)
            if (path / "cgroup.subtree_control").exists() and path == home:
                (path / "cgroup.subtree_control").write_text("+cpu")
        weigh(home)
        limit(home / "slow")
        (home / "rest" / "cgroup.procs").write_text(str(os.getpid()))
        usable = True
    except OSError:
        usable = False
    try:
        yield home if usable else None
    finally:
        if usable:
            (Path(str(root)) / "cgroup.procs").write_text(str(os.getpid()))
        for path in reversed(made):
            path.rmdir()


def weigh(home: Path) -> None:
    if (home / "cpu.weight").exists():
        (home / "cpu.weight").write_text("10000")
    else:
        (home / "cpu.shares").write_text(str(100 * 1024))


def limit(home: Path) -> None:
    """Let a control group have half of one core."""
    if (home / "cpu.max").exists():
        (home / "cpu.max").write_text(f"{PERIOD_US // 2} {PERIOD_US}")
        return
    (home / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (home / "cpu.cfs_quota_us").write_text(str(PERIOD_US // 2))


def report(found: dict[str, Any], slowness: str) -> None:
    """Print the table."""
    console = Console(width=110)
    made = {
        "quota": f"half of one core by the kernel's quota, in periods of {PERIOD_US // 1000} ms",
        "competitor": "a core shared with a process that never sleeps",
    }
    console.print(f"Worker {SLOW} is slow: {made[slowness]}. Each worker has a core of its own.")
    for rank, (fixed, each) in enumerate(found["lines"]):
        console.print(
            f"Worker {rank} alone: {1000 * fixed:.1f} ms + {1000 * each:.3f} ms for each sample"
        )
    table = Table("portions", "samples", "step", "beside ideal, paired", "quartiles")
    sizes = [round(statistics.median(column)) for column in zip(*found["sizes"], strict=True)]
    batch = sum(found["ideal"])
    half = batch // 2
    shown = {"equal": [batch - half, half], "auto": sizes, "ideal": found["ideal"]}
    for name in MODES:
        times = found["rounds"][name]
        pairs = [a / b for a, b in zip(times, found["rounds"]["ideal"], strict=True)]
        low, _, high = statistics.quantiles(pairs, n=4)
        table.add_row(
            name,
            str(shown[name]),
            f"{1000 * statistics.median(times):.1f} ms",
            f"{statistics.median(pairs):.3f}",
            f"{low:.3f} to {high:.3f}",
        )
    console.print(table)
    speed = statistics.median(
        a / b for a, b in zip(found["rounds"]["equal"], found["rounds"]["auto"], strict=True)
    )
    console.print(f"auto is {speed:.2f} times as fast as equal portions")
    steps = " ".join(f"{1000 * each:.0f}" for each in found["first"]["auto"])
    console.print(f"auto from its first step on, ms: {steps}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kv-store", default="dist_sync")
    parser.add_argument("--batch-size", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=7, help="of each way in a round")
    parser.add_argument("--warmup", type=int, default=20, help="steps before the first round")
    parser.add_argument("--slowness", choices=("quota", "competitor"))
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.out is not None:
        work(args)
        return
    with contextlib.ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "found.json"
        group = None if args.slowness == "competitor" else stack.enter_context(groups())
        if group is None and args.slowness == "quota":
            parser.error("this process may not make a control group; use --slowness competitor")
        options = [
            f"--{name.replace('_', '-')}={getattr(args, name)}"
            for name in ("kv_store", "batch_size", "rounds", "steps", "warmup")
        ]
        options += [] if group is None else [f"--group={group}"]
        subprocess.run(
            [
                *(sys.executable, "-m", "bireme", "run", "-n", "2", "-s", "1"),
                *(sys.executable, __file__, *options, f"--out={out}"),
            ],
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        report(json.loads(out.read_text()), "competitor" if group is None else "quota")


if __name__ == "__main__":
    main()
