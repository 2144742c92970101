"""Times a training step with overlap of computation and communication, and without.

Each host is a network namespace whose link is shaped both ways by ``tc tbf`` to 200 Mbit/s; a
worker and a server run on each. Every worker trains VGG-11 for CIFAR-10 (9.2 million parameters) on
synthetic data, one thread each, SGD with momentum on the servers. Both ways take turns in one
job, a few steps at a time; the ratio is the median of paired rounds, and the time of a round that
of its slowest worker. Beside them: the time of forward and backward alone, and of an exchange of
all gradients alone; a step cannot take less than the longer of the two.

Needs root. Usage::

    python benchmarks/bench_overlap.py
    python benchmarks/bench_overlap.py --hosts 4 --batch 16 --rate 100
"""

import argparse
import contextlib
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from netns import Cluster, ClusterError, Host, cluster

HERE = Path(__file__).resolve().parent
START_S = 120
LIMIT_S = 560


def run_job(net: Cluster, script: Sequence[str], env: Mapping[str, str]) -> None:
    """Run a worker and a server on every host, and the scheduler on the first.

    Raises:
        SystemExit: A worker failed, or it took too long.
    """
    hosts = net.hosts
    common = {
        "BIREME_NUM_WORKERS": str(len(hosts)),
        "BIREME_NUM_SERVERS": str(len(hosts)),
        "BIREME_SCHEDULER_HOST": hosts[0].address,
        "BIREME_SCHEDULER_PORT": "7708",
        "BIREME_SECRET": secrets.token_hex(32),
        "BIREME_JOB": f"bench{secrets.token_hex(4)}",
        "BIREME_START_TIMEOUT": str(START_S),
        "BIREME_HEARTBEAT_TIMEOUT": "60",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parent / "src"),
    } | dict(env)
    roles: list[tuple[str, int, Host]] = [("scheduler", 0, hosts[0])]
    roles += [("server", host.index, host) for host in hosts]
    roles += [("worker", host.index, host) for host in hosts]
    processes: list[subprocess.Popen[str]] = []
    try:
        for role, rank, host in roles:
            own = {
                "BIREME_ROLE": role,
                "BIREME_RANK": str(rank),
                "BIREME_HOST": host.address,
                "BIREME_LINK_MBPS": f"{host.rate_mbit:g}",
            }
            processes.append(host.start([sys.executable, *script], common | own))
        for process in processes:
            if process.wait(LIMIT_S):
                raise SystemExit(f"a process of the job ended with {process.returncode}")
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()


def measure(arguments: argparse.Namespace) -> list[dict[str, list[float]]]:
    """Return what every worker found."""
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster([arguments.rate] * arguments.hosts, arguments.mtu) as net,
    ):
        script = [str(HERE / "overlap_peer.py"), folder]
        for name in ("batch", "steps", "rounds"):
            script += [f"--{name}", str(getattr(arguments, name))]
        run_job(net, script, {"BIREME_TIMELINE": arguments.trace or ""})
        return [
            json.loads((Path(folder) / f"{rank}.json").read_text())
            for rank in range(arguments.hosts)
        ]


def slowest(found: Sequence[Mapping[str, list[float]]], name: str) -> list[float]:
    """Return the slowest worker's time of each round."""
    return [max(each) for each in zip(*(worker[name] for worker in found), strict=True)]


def show(found: Sequence[Mapping[str, list[float]]], console: Console) -> None:
    """Print the table."""
    off, on = slowest(found, "off"), slowest(found, "on")
    alone = {name: statistics.median(slowest(found, name)) for name in ("compute", "exchange")}
    ratios = sorted(before / after for before, after in zip(off, on, strict=True))
    table = Table("", "seconds (median)")
    table.add_row("forward and backward alone", f"{alone['compute']:.3f}")
    table.add_row("exchange alone", f"{alone['exchange']:.3f}")
    table.add_row("step without overlap", f"{statistics.median(off):.3f}")
    table.add_row("step with overlap", f"{statistics.median(on):.3f}")
    table.add_row("the longer of the two alone", f"{max(alone.values()):.3f}")
    console.print(table)
    hidden = statistics.median(off) - statistics.median(on)
    console.print(
        f"without / with overlap: {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}); hidden {hidden:.3f} s of a step; parameters "
        f"{'the same' if all(worker['same'] for worker in found) else 'DIFFERENT'}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", type=float, default=200, help="Mbit/s of each link, both ways")
    parser.add_argument("--mtu", type=int, default=9000, help="largest packet; see netns.py")
    parser.add_argument("--batch", type=int, default=96, help="samples of each worker")
    parser.add_argument(
        "--steps", type=int, default=5, help="in a turn; filling and draining the pipeline count"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trace", help="write timelines of all processes beside this file")
    arguments = parser.parse_args()
    try:
        found = measure(arguments)
    except ClusterError as error:
        raise SystemExit(str(error)) from error
    show(found, Console())


if __name__ == "__main__":
    main()
