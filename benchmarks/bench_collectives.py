"""Collectives beside Horovod 0.28.1 and ``torch.distributed`` on Gloo.

Three parts, each with all sides in one run, in turns, warmed up; the figures are medians of
ratios of the same round.

* ``local``: all-reduce of 40 KB, 4 MB and 40 MB, and of 100 tensors of 40 KB submitted at once,
  between 2 and 4 processes of this machine;
* ``train``: ResNet-18 on synthetic CIFAR-10, 32 samples for each process and step;
* ``network``: 40 MB between 4 hosts at 200 Mbit/s (network namespaces, needs root) with one and
  with two processes on each, beside the least time that the links need.

Horovod runs in an environment of its own: ``--horovod /path/to/its/python``. Usage::

    python benchmarks/bench_collectives.py --horovod ~/hvd/bin/python
"""

import argparse
import contextlib
import os
import secrets
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from net_job import Job, JobError, gloo_job, launched
from netns import ClusterError, cluster

HERE = Path(__file__).resolve().parent
PEER = HERE / "collectives_peer.py"
KB = 1000
CASES = {
    "40 KB": ([40 * KB], 200),
    "4 MB": ([4000 * KB], 20),
    "40 MB": ([40_000 * KB], 4),
    "100 x 40 KB": ([40 * KB] * 100, 8),
}
"""Sizes of the tensors in bytes, and how often a timing repeats."""
NUM_HOSTS, RATE_MBIT, NETWORK_BYTES = 4, 200.0, 40_000 * KB

Times = dict[str, list[float]]


@contextlib.contextmanager
def torch_job(size: int, engine: bool) -> Iterator[Job]:
    """Run our side, with Gloo in the same processes, as torchrun would start it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {
        "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent / "src"),
        "BIREME_SECRET": secrets.token_hex(32),
    }  # fmt: skip
    side = "engine" if engine else "torch"
    commands = [
        ([sys.executable, str(PEER), side], common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(size)
    ]
    with local_job(commands, size) as job:
        yield job


@contextlib.contextmanager
def horovod_job(python: Path, size: int) -> Iterator[Job]:
    """Run Horovod's side by its own launcher."""
    launcher = [str(python.parent / "horovodrun"), "-np", str(size), "--gloo", str(python)]
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    command = ([*launcher, str(PEER), "horovod"], {"OMP_NUM_THREADS": "1", "PATH": path})
    with local_job([command], size) as job:
        yield job


@contextlib.contextmanager
def local_job(commands: Sequence[tuple[list[str], Mapping[str, str]]], size: int) -> Iterator[Job]:
    """Run ``commands``, which end with the path of the socket they connect to."""

    def start(command: list[str], env: Mapping[str, str], path: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, path], env=os.environ | dict(env), text=True, stdout=subprocess.DEVNULL
        )

    with launched(
        [lambda path, c=command, e=env: start(c, e, path) for command, env in commands], size
    ) as job:
        yield job


def in_turns(sides: dict[str, Job], rounds: int, case: str, **params: object) -> Times:
    """Return the seconds of each way by round; the order changes from round to round."""
    times: Times = {way: [] for way in sides}
    for number in range(rounds + 1):
        for way in sorted(sides, reverse=bool(number % 2)):
            seconds = sides[way].seconds(case, way=way, **params)
            if number:
                times[way].append(seconds)
    return times


def ratio(times: Times, peer: str, ours: str) -> str:
    """Return how many times ours is as fast as a peer."""
    if peer not in times or ours not in times:
        return "-"
    pairs = zip(times[peer], times[ours], strict=True)
    return f"{statistics.median(a / b for a, b in pairs):.2f}"


def local(jobs: dict[str, Job], size: int, rounds: int, console: Console) -> None:
    """Compare all-reduce on this machine."""
    ways = [way for way in ("horovod", "gloo", "bireme", "engine") if way in jobs]
    table = Table(title=f"all-reduce, {size} processes, ms")
    for name in ("", *ways, "bireme/gloo", "engine/gloo", "engine/horovod", "bireme/horovod"):
        table.add_column(name)
    for name, (sizes, count) in CASES.items():
        times = in_turns(jobs, rounds, "reduce", sizes=sizes, count=count)
        shown = [f"{statistics.median(times[way]) * 1e3:.3g}" for way in ways]
        pairs = (("gloo", "bireme"), ("gloo", "engine"), ("horovod", "engine"))
        ratios = [ratio(times, *pair) for pair in (*pairs, ("horovod", "bireme"))]
        table.add_row(name, *shown, *ratios)
    console.print(table)


def train(trainers: dict[str, Job], size: int, rounds: int, console: Console) -> None:
    """Compare training of ResNet-18."""
    batch = 32
    times = in_turns(trainers, rounds, "train", model="resnet18", batch_size=batch, steps=2)
    table = Table(title=f"ResNet-18, {size} processes of {batch} samples")
    for name in ("", "samples/s", "over DDP on Gloo", "over Horovod"):
        table.add_column(name)
    for way, seconds in times.items():
        rate = f"{size * batch / statistics.median(seconds):.1f}"
        table.add_row(way, rate, ratio(times, "ddp gloo", way), ratio(times, "horovod", way))
    console.print(table)


def network(per_host: int, rounds: int, console: Console) -> None:
    """Compare all-reduce between hosts on slow links."""
    wire = NETWORK_BYTES / (RATE_MBIT * 1e6 / 8)
    bound = 2 * (NUM_HOSTS - 1) / NUM_HOSTS * wire
    env = {"PYTHONPATH": str(HERE.parent / "src")}
    with cluster([RATE_MBIT] * NUM_HOSTS, mtu=9000) as hosts:
        workers = [host for host in hosts.hosts for _ in range(per_host)]
        with gloo_job(workers, PEER, env, ["torch"]) as job:
            sides = dict.fromkeys(("gloo", "bireme"), job)
            times = in_turns(sides, rounds, "reduce", sizes=[NETWORK_BYTES], count=1)
    table = Table(title=f"40 MB, {NUM_HOSTS} hosts of {per_host} at {RATE_MBIT:g} Mbit/s")
    for name in ("", "s", "over the bound"):
        table.add_column(name)
    table.add_row("bound", f"{bound:.3f}", "")
    for way, seconds in times.items():
        median = statistics.median(seconds)
        table.add_row(way, f"{median:.3f}", f"{(median / bound - 1) * 100:.1f} %")
    console.print(table)


def on_this_machine(size: int, options: argparse.Namespace, console: Console) -> None:
    """Run the parts that need no network."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(torch_job(size, options.engine))]
        if options.horovod:
            held.append(stack.enter_context(horovod_job(options.horovod, size)))
        jobs, trainers = {}, {}
        for job in held:
            names = job.ask("names")[0]
            jobs |= dict.fromkeys(names["ways"], job)
            trainers |= dict.fromkeys(names["trainers"], job)
        if "local" in options.parts:
            local(jobs, size, options.rounds, console)
        if "train" in options.parts:
            train(trainers, size, options.rounds, console)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--horovod", type=Path, help="Python of an environment with Horovod")
    parser.add_argument("--no-engine", dest="engine", action="store_false")
    parser.add_argument("--parts", nargs="+", default=["local", "train", "network"])
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(argv)
    console = Console(width=140)
    if options.horovod is None or not options.horovod.exists():
        console.print(f"Horovod is left out: no Python at {options.horovod} (--horovod)")
        options.horovod = None
    try:
        if {"local", "train"} & set(options.parts):
            for size in options.processes:
                on_this_machine(size, options, console)
        if "network" in options.parts:
            for per_host in (1, 2):
                network(per_host, min(options.rounds, 5), console)
    except (JobError, ClusterError) as error:
        console.print(f"stopped: {error}")
        return 1
    console.print(f"load average {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
