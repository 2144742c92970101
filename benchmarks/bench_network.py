"""Times ``dist_sync`` on links of a known speed, against the bound and Gloo's all-reduce.

Each host is a network namespace whose link is shaped both ways by ``tc tbf``; the processes are
real. Four machines with a worker each (or several, ``--per-host``) push and pull M bytes in each
round, with 0 to 4 extra machines that only serve; with fewer than 4 every worker's machine serves
too. The bound is the time that the busiest link needs for the bytes which must cross it, with the
best division of the bytes over the servers
(`bireme.placement.links`); headers and acknowledgements count against us. Both sides take turns,
round by round, on the same links; the ratio to Gloo is the median of paired rounds.

Needs root. On a machine that does other things too, real-time priority for all processes of both
sides (``chrt -r 5``) keeps waiting for a processor out of the figures; without it they vary up to
threefold. Usage::

    chrt -r 5 python benchmarks/bench_network.py
    python benchmarks/bench_network.py --rates 50 --extra 0 2 4 --rounds 5
    python benchmarks/bench_network.py --separate         # servers on machines of their own only
    python benchmarks/bench_network.py --hosts 50,50,25,25,100   # unequal links; the rest serve
    python benchmarks/bench_network.py --extra 0 4 --per-host 2  # workers on each machine
"""

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from bireme.placement import Site, spread
from net_job import HERE, Job, JobError, bireme_job, gloo_job
from netns import Cluster, ClusterError, Count, cluster

NUM_WORKERS = 4
SEED = 20
NAME = "case"


@dataclass
class Setting:
    """One row: which machines there are, and who serves."""

    rates_mbit: Sequence[float]
    colocated: bool
    """Whether the workers' machines serve too."""
    bytes_per_round: int
    per_host: int = 1
    """Workers on each of the first machines."""
    num_hosts: int = NUM_WORKERS
    """Machines with workers; they come first."""
    results: dict[str, list[float]] = field(default_factory=dict)

    @property
    def num_extra(self) -> int:
        """Machines that only serve."""
        return len(self.rates_mbit) - self.num_hosts

    def sites(self) -> list[Site]:
        """Return the machines as the placement sees them; a machine's workers speak as one."""
        both = [Site(rate, 1, int(self.colocated)) for rate in self.rates_mbit[: self.num_hosts]]
        return both + [Site(rate, 0, 1) for rate in self.rates_mbit[self.num_hosts :]]

    def bound_s(self) -> float:
        """Return the least time of a round."""
        return spread(self.sites()).duration * self.bytes_per_round * 8 / 1e6

    def gloo_bound_s(self) -> float:
        """Return the least time of an all-reduce without extra machines."""
        slowest = min(self.rates_mbit[: self.num_hosts])
        passes = 2 * (self.num_hosts - 1) / self.num_hosts
        return passes * self.bytes_per_round * 8 / 1e6 / slowest

    def label(self) -> str:
        """Return what the row is called."""
        kind = "on the workers' machines" if self.colocated else "separate"
        if self.colocated and self.num_extra:
            kind += " too"
        return kind


class Watch:
    """Samples the links while it is open: how full both directions are."""

    def __init__(self, net: Cluster) -> None:
        self._net = net
        self._stop = threading.Event()
        self.samples: list[tuple[float, list[Count]]] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Watch":
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.samples.append((time.perf_counter(), self._net.counts()))
            self._stop.wait(0.05)

    def show(self, console: Console) -> None:
        """Print how full each link was, sample by sample: out/in in per cent of its speed."""
        for (before_s, before), (now_s, now) in itertools.pairwise(self.samples):
            cells = []
            for host, old, new in zip(self._net.hosts, before, now, strict=True):
                passed = new.since(old)
                full = (now_s - before_s) * host.rate_mbit * 1e6 / 8 / 100
                cells.append(f"{passed.sent_bytes / full:3.0f}/{passed.received_bytes / full:3.0f}")
            console.print(f"{now_s - self.samples[0][0]:6.2f} s  " + "  ".join(cells))


@contextlib.contextmanager
def jobs(
    setting: Setting, arguments: argparse.Namespace
) -> Iterator[tuple[Cluster, dict[str, Job]]]:
    """Make the machines, and start both sides on them."""
    with contextlib.ExitStack() as stack:
        net = stack.enter_context(cluster(setting.rates_mbit, arguments.mtu))
        with_workers = net.hosts[: setting.num_hosts]
        servers = (with_workers if setting.colocated else []) + net.hosts[setting.num_hosts :]
        workers = [host for host in with_workers for _ in range(setting.per_host)]
        ours = bireme_job(
            workers,
            servers,
            HERE / "bireme_dist.py",
            dict(each.split("=", 1) for each in arguments.env),
            stated=not arguments.unstated,
        )
        sides = {"ours": stack.enter_context(ours)}
        if not arguments.alone:
            sides["gloo"] = stack.enter_context(gloo_job(with_workers, HERE / "gloo_peer.py"))
        yield net, sides


def measure(setting: Setting, arguments: argparse.Namespace, console: Console) -> list[str]:
    """Return the cells of one row."""
    with jobs(setting, arguments) as (net, sides):
        for side in sides.values():
            side.ask("prepare", name=NAME, sizes=[setting.bytes_per_round // 4], seed=SEED)
            side.seconds("pushpull", name=NAME, rounds=1)
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        most_bytes = 0.0
        for number in range(arguments.rounds):
            # The other one begins each round, so that none always runs in the other's wake.
            for name in sorted(sides, reverse=bool(number % 2)):
                before = net.counts()
                time.sleep(arguments.pause)
                seconds[name].append(sides[name].seconds("pushpull", name=NAME, rounds=1))
                if name == "ours":
                    passed = [new.since(old) for old, new in zip(before, net.counts(), strict=True)]
                    most_bytes = max(most_bytes, *(max(each) for each in passed[:NUM_WORKERS]))
        if arguments.timeline:
            time.sleep(arguments.pause)
            with Watch(net) as watch:
                sides["ours"].seconds("pushpull", name=NAME, rounds=1)
            watch.show(console)
    return row(setting, seconds, most_bytes)


def row(setting: Setting, seconds: dict[str, list[float]], most_bytes: float) -> list[str]:
    """Return the cells of a measured setting."""
    bound_s, ours_s = setting.bound_s(), statistics.median(seconds["ours"])
    rates = sorted(set(setting.rates_mbit))
    cells = [
        "/".join(f"{rate:g}" for rate in rates),
        str(setting.num_extra),
        setting.label(),
        f"{setting.bytes_per_round / 1e6:g}",
        f"{bound_s:.3f}",
        f"{ours_s:.3f}",
        f"{ours_s / bound_s:.3f}",
        f"{most_bytes / setting.bytes_per_round:.2f}",
    ]
    if "gloo" not in seconds:
        return [*cells, "", "", ""]
    gloo_s = statistics.median(seconds["gloo"])
    ratios = [theirs / mine for theirs, mine in zip(seconds["gloo"], seconds["ours"], strict=True)]
    return [
        *cells,
        f"{gloo_s:.3f}",
        f"{gloo_s / setting.gloo_bound_s():.3f}",
        f"{statistics.median(ratios):.2f}",
    ]


def settings(arguments: argparse.Namespace) -> list[Setting]:
    """Return the rows that were asked for."""
    if arguments.hosts:
        rates = [float(each) for each in arguments.hosts.split(",")]
        size = round(min(rates) * arguments.megabytes * 1e6 / 50)
        return [Setting(rates, not arguments.separate, size, arguments.per_host)]
    found = []
    for rate in arguments.rates:
        # As long a round at each speed.
        size = round(rate * arguments.megabytes * 1e6 / 50)
        for extra in arguments.extra:
            rates = [rate] * (NUM_WORKERS + extra)
            if arguments.separate:
                if extra:
                    found.append(Setting(rates, False, size, arguments.per_host))
            else:
                is_colocated = extra < NUM_WORKERS
                found.append(Setting(rates, is_colocated, size, arguments.per_host))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure every row and print a table."""
    parser = argparse.ArgumentParser(description="dist_sync on links of a known speed.")
    parser.add_argument("--rates", type=float, nargs="+", default=[50, 200], help="Mbit/s")
    parser.add_argument("--extra", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--separate", action="store_true", help="no servers beside workers")
    parser.add_argument("--hosts", help="speed of each machine's link; the first 4 have workers")
    parser.add_argument("--per-host", type=int, default=1, help="workers on each of 4 machines")
    parser.add_argument("--megabytes", type=float, default=6.0, help="per round at 50 Mbit/s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mtu", type=int, default=9000, help="largest packet; see netns.py")
    parser.add_argument("--alone", action="store_true", help="time our side only")
    parser.add_argument("--unstated", action="store_true", help="do not state the links' speeds")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each round")
    parser.add_argument("--timeline", action="store_true", help="show how full the links are")
    parser.add_argument("--env", nargs="*", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args(argv)
    console = Console(width=130)
    table = Table(
        title=f"{NUM_WORKERS} machines of {arguments.per_host} workers: a push and a pull, seconds"
    )
    for name in ("Mbit/s", "extra", "servers", "MB", "bound", "ours", "of bound", "sent / M"):
        table.add_column(name, justify="left" if name == "servers" else "right")
    for name in ("Gloo", "of its bound", "times Gloo's speed"):
        table.add_column(name, justify="right")
    load_before, started_s = os.getloadavg()[0], time.monotonic()
    try:
        for setting in settings(arguments):
            cells = measure(setting, arguments, console)
            table.add_row(*cells)
            console.print("  ".join(cells))
    except (ClusterError, JobError) as error:
        print(error, file=sys.stderr)
        return 1
    console.print(table)
    console.print(
        f"medians of {arguments.rounds} rounds; load average {load_before:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores; "
        f"{time.monotonic() - started_s:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
