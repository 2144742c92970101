"""Times ``dist_sync`` against MXNet 1.9.1's on one machine: a push and a pull of every key.

Two workers with one server, then with two; float32 keys. Both clusters are up for the whole run
and take turns in short rounds, so that what else the machine does hits both; the ratio is the
median over rounds of MXNet's time divided by ours in the same round, with its quartiles. A round's
time is that of the slower worker. Same sizes, same seeds, a warm-up, one thread per process.

Also counted: a server's own memory beside the bytes of its values, what a worker holds beyond its
tensors beside the bytes of the gradient, and the messages of one step.

Usage::

    python benchmarks/bench_parameter_server.py --mxnet-python /path/to/mxnet/bin/python
    python benchmarks/bench_parameter_server.py --transport tcp --servers 1
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mxnet_peer import Peer, PeerError, ensure_mxnet

HERE = Path(__file__).resolve().parent
NUM_WORKERS = 2
SEED = 20
TARGET_S = 0.1
"""How long one side's turn takes, about."""

Ask = dict[str, Any]


def resnet50_sizes() -> list[int]:
    """Return the number of elements of ResNet-50's 161 parameters, in order."""
    sizes = [64 * 3 * 49, 64, 64]
    inputs = 64
    for width, num_blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(num_blocks):
            outputs = 4 * width
            sizes += [width * inputs, width, width]
            sizes += [width * width * 9, width, width]
            sizes += [outputs * width, outputs, outputs]
            if block == 0:
                sizes += [outputs * inputs, outputs, outputs]
            inputs = outputs
    return [*sizes, 1000 * inputs, 1000]


def scaled(sizes: Sequence[int], total: int) -> list[int]:
    """Return ``sizes`` in proportion, summing to about ``total``."""
    factor = total / sum(sizes)
    return [max(1, round(size * factor)) for size in sizes]


@dataclass(frozen=True)
class Case:
    """A set of keys and how many times faster than MXNet it shall be."""

    name: str
    sizes: Sequence[int]
    goal: float


CASES = (
    Case("40 MB in 1 key", (10_000_000,), 5),
    Case("40 MB in 161 keys", scaled(resnet50_sizes(), 10_000_000), 3),
    Case("4 MB in 100 keys", (10_000,) * 100, 6),
    Case("40 KB in 1 key", (10_000,), 5),
)
TCP_GOAL = 2.5


class Cluster:
    """Two workers that are asked the same at the same time."""

    def __init__(self, asks: Sequence[Any]) -> None:
        self._asks = asks
        self._threads = ThreadPoolExecutor(len(asks))

    def ask(self, case: str, **params: Any) -> list[Ask]:
        """Return every worker's answer."""
        pending = [self._threads.submit(ask, case, **params) for ask in self._asks]
        return [each.result() for each in pending]

    def seconds(self, case: Case, rounds: int) -> float:
        """Return the slower worker's time of one push and pull."""
        return max(each["seconds"] for each in self.ask("pushpull", name=case.name, rounds=rounds))


class OurWorker:
    """The line to one of our workers."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(300)
        self._lines = connection.makefile("rw")
        self.rank = int(json.loads(self._lines.readline())["rank"])

    def ask(self, case: str, **params: Any) -> Ask:
        """Return the answer to a case."""
        print(json.dumps({"case": case} | params), file=self._lines, flush=True)
        answer: Ask = json.loads(self._lines.readline() or '{"error": "the worker is gone"}')
        if "error" in answer:
            raise RuntimeError(f"case {case!r} failed in our worker:\n{answer['error']}")
        return answer

    def close(self) -> None:
        """Let the worker leave the job."""
        self._lines.close()


class Ours(Cluster):
    """Our cluster, and what its processes hold."""

    def __init__(self, launcher: subprocess.Popen[bytes], workers: Sequence[OurWorker]) -> None:
        super().__init__([worker.ask for worker in workers])
        self._launcher = launcher

    def own_bytes(self, role: str) -> list[int]:
        """Return the memory that each process of a role has taken for itself."""
        children = Path(f"/proc/{self._launcher.pid}/task/{self._launcher.pid}/children")
        return own_bytes([int(pid) for pid in children.read_text().split()], role)

    def settle(self) -> None:
        """Wait until the processes have loaded what they load beside their work."""
        before_s, limit_s = -1.0, time.monotonic() + 30
        while time.monotonic() < limit_s:
            children = Path(f"/proc/{self._launcher.pid}/task/{self._launcher.pid}/children")
            used_s = sum(cpu_s(int(pid)) for pid in children.read_text().split())
            if used_s - before_s < 0.1:
                return
            before_s = used_s
            time.sleep(0.5)

    def messages(self) -> int:
        """Return the messages that the first worker has sent and received so far."""
        return int(self.ask("counts")[0]["messages"])


def own_bytes(pids: Sequence[int], role: str) -> list[int]:
    """Return the private memory of a job's processes of one role, and the shared that they made.

    Shared memory is its maker's, not that of the peers which look into it. The maker is who holds
    it open most often: by its descriptor and by its mapping.
    """
    opened = {pid: shared_files(pid) for pid in pids}
    found = []
    for pid, files in opened.items():
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"BIREME_ROLE={role}".encode() not in environ:
            continue
        own = anonymous_bytes(pid)
        for inode, (size_bytes, times) in files.items():
            if times == max(other[inode][1] for other in opened.values() if inode in other):
                own += size_bytes
        found.append(own)
    return found


def anonymous_bytes(pid: int) -> int:
    """Return the memory of a process that no file and no other process has part in."""
    total, anonymous = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            anonymous = line.endswith("/dev/zero (deleted)")  # what mmap.mmap(-1) makes
        elif name == "Anonymous:" or (name == "Rss:" and anonymous):
            total += int(rest.split()[0]) * 1024
    return total


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shared_files(pid: int) -> dict[int, tuple[int, int]]:
    """Return by inode the bytes of each memory file of a process and how often it is open."""
    found: dict[int, tuple[int, int]] = {}
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "memfd:" in os.readlink(descriptor):
                status = descriptor.stat()
                times = found.get(status.st_ino, (0, 0))[1] + 1
                found[status.st_ino] = (status.st_blocks * 512, times)
    return found


@contextlib.contextmanager
def our_cluster(num_servers: int, transport: str) -> Iterator[Ours]:
    """Start our cluster by ``bireme run``; end it on exit."""
    command = [sys.executable, "-m", "bireme", "run", "-n", str(NUM_WORKERS)]
    command += ["-s", str(num_servers), sys.executable, str(HERE / "bireme_dist.py")]
    env = os.environ | {"BIREME_TRANSPORT": transport, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = f"{folder}/bench"
        listener.bind(path)
        listener.listen()
        listener.settimeout(60)
        launcher = subprocess.Popen([*command, path], env=env)
        workers: list[OurWorker] = []
        try:
            workers += [OurWorker(listener.accept()[0]) for _ in range(NUM_WORKERS)]
            workers.sort(key=lambda worker: worker.rank)
            yield Ours(launcher, workers)
        finally:
            for worker in workers:
                worker.close()
            if not workers:
                launcher.terminate()
            if launcher.wait(60) != 0:
                print(f"our cluster ended with {launcher.returncode}", file=sys.stderr)


@contextlib.contextmanager
def mxnet_cluster(num_servers: int, python: Path) -> Iterator[Cluster]:
    """Start MXNet's cluster; end it on exit."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def start(role: str) -> Peer:
        env = {
            "DMLC_ROLE": role,
            "DMLC_NUM_WORKER": str(NUM_WORKERS),
            "DMLC_NUM_SERVER": str(num_servers),
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(port),
            "DMLC_INTERFACE": "lo",
            "DMLC_NODE_HOST": "127.0.0.1",
        }
        return Peer(python, HERE / "mxnet_dist.py", environ=env)

    roles = ["worker"] * NUM_WORKERS + ["scheduler"] + ["server"] * num_servers
    with contextlib.ExitStack() as stack:
        # Workers are closed first: the others go when they have left.
        peers = [start(role) for role in roles]
        for peer in reversed(peers):
            stack.callback(peer.close)
        yield Cluster([peer.ask for peer in peers[:NUM_WORKERS]])


def measure(sides: Mapping[str, Cluster], case: Case, num_rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each side, one for each round."""
    repeats = {}
    for name, side in sides.items():
        side.ask("prepare", name=case.name, sizes=list(case.sizes), seed=SEED)
        side.seconds(case, 3)
        repeats[name] = max(2, min(200, round(TARGET_S / side.seconds(case, 2))))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(num_rounds):
        # The other one begins each round, so that none always runs in the other's wake.
        for name in sorted(sides, reverse=bool(number % 2)):
            seconds[name].append(sides[name].seconds(case, repeats[name]))
    return seconds


def holdings(ours: Ours, case: Case, before: tuple[int, int]) -> list[str]:
    """Return the cells on memory and messages of a case that has been measured."""
    value_bytes = 4 * sum(case.sizes)
    servers = sum(ours.own_bytes("server")) - before[0]
    # A worker's gradients and outs are the benchmark's.
    workers = max(ours.own_bytes("worker")) - before[1] - 2 * value_bytes
    count = ours.messages()
    ours.seconds(case, 10)
    per_step = (ours.messages() - count) / 10
    small = value_bytes < 1 << 22
    cells = ["", ""] if small else [f"{servers / value_bytes:.2f}", f"{workers / value_bytes:.2f}"]
    return [*cells, f"{per_step:.0f}"]


def row(case: Case, goal: float, seconds: Mapping[str, list[float]]) -> list[str]:
    """Return the cells on time of a case."""
    ours = seconds["ours"]
    cells = [f"{statistics.median(ours) * 1e3:.2f}"]
    if "mxnet" not in seconds:
        return [case.name, *cells, "", "", "", ""]
    ratios = [theirs / mine for theirs, mine in zip(seconds["mxnet"], ours, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return [
        case.name,
        *cells,
        f"{statistics.median(seconds['mxnet']) * 1e3:.2f}",
        f"{middle:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{goal:g} {'met' if middle >= goal else 'missed'}",
    ]


def run_servers(
    table: Table, num_servers: int, arguments: argparse.Namespace, python: Path | None
) -> None:
    """Measure every case with so many servers and add the rows."""
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(our_cluster(num_servers, arguments.transport))
        sides: dict[str, Cluster] = {"ours": ours}
        if python is not None:
            sides["mxnet"] = stack.enter_context(mxnet_cluster(num_servers, python))
        warm_up = Case("warm-up", (1000,), 0)
        measure(sides, warm_up, 2)
        ours.settle()
        for case in CASES:
            before = sum(ours.own_bytes("server")), max(ours.own_bytes("worker"))
            seconds = measure(sides, case, arguments.rounds)
            goal = case.goal if arguments.transport in ("auto", "shm") else TCP_GOAL
            cells = row(case, goal, seconds) + holdings(ours, case, before)
            table.add_row(str(num_servers), *cells)
        table.add_section()


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description="dist_sync against MXNet 1.9.1.")
    parser.add_argument("--mxnet-python", help="interpreter that imports MXNet 1.9.1")
    parser.add_argument("--alone", action="store_true", help="time our side only")
    parser.add_argument("--transport", choices=("auto", "shm", "unix", "tcp"), default="shm")
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, help="rounds per case; default 21, or 5 if quick")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    arguments = parser.parse_args(argv)
    arguments.rounds = max(2, arguments.rounds or (5 if arguments.quick else 21))
    console = Console(width=130)
    table = Table(title=f"{NUM_WORKERS} workers, {arguments.transport}: one push and pull")
    table.add_column("servers")
    table.add_column("keys")
    for name in ("ours ms", "MXNet ms", "ratio", "quartiles", "goal"):
        table.add_column(name, justify="right")
    for name in ("server memory", "worker memory", "messages"):
        table.add_column(name, justify="right")
    load_before = os.getloadavg()[0]
    started_s = time.monotonic()
    try:
        python = None if arguments.alone else ensure_mxnet(arguments.mxnet_python)
        for num_servers in arguments.servers:
            run_servers(table, num_servers, arguments, python)
    except (PeerError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    console.print(table)
    console.print(
        f"medians of {arguments.rounds} rounds; ratio: MXNet's time over ours; memory: of all "
        "servers over the values' bytes, of a worker (beyond its tensors) over the gradient's; "
        "messages: sent and received by one worker in one step"
    )
    console.print(
        f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after; "
        f"{os.cpu_count()} cores; {time.monotonic() - started_s:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
