"""Jobs of real processes on the hosts of a `netns` cluster, driven line by line.

Used by the network benchmarks: ours (scheduler, servers and workers started with ``BIREME_*``
variables) and ``torch.distributed`` with Gloo, both running a script that answers cases.
"""

import contextlib
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from netns import Host

HERE = Path(__file__).resolve().parent
START_S = 120
_SOURCES = str(HERE.parent / "src")


class JobError(Exception):
    """A process of a job is gone, or a case failed in it."""


class Line:
    """The line to one worker."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(300)
        self._connection = connection
        self._lines = connection.makefile("rw")
        self.rank = int(json.loads(self._lines.readline())["rank"])

    def ask(self, case: str, **params: Any) -> dict[str, Any]:
        """Return the answer to a case."""
        print(json.dumps({"case": case} | params), file=self._lines, flush=True)
        answer: dict[str, Any] = json.loads(
            self._lines.readline() or '{"error": "the worker is gone"}'
        )
        if "error" in answer:
            raise JobError(f"case {case!r} failed in worker {self.rank}:\n{answer['error']}")
        return answer

    def close(self) -> None:
        """Let the worker end."""
        self._lines.close()
        self._connection.close()


class Job:
    """Workers that are asked the same at the same time."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = sorted(lines, key=lambda line: line.rank)
        self._threads = ThreadPoolExecutor(len(lines))

    def ask(self, case: str, **params: Any) -> list[dict[str, Any]]:
        """Return every worker's answer, by rank."""
        pending = [self._threads.submit(line.ask, case, **params) for line in self._lines]
        return [each.result() for each in pending]

    def close(self) -> None:
        """Let the workers end."""
        self._threads.shutdown()
        for line in self._lines:
            line.close()

    def seconds(self, case: str, **params: Any) -> float:
        """Return the slowest worker's time."""
        return max(float(each["seconds"]) for each in self.ask(case, **params))


@contextlib.contextmanager
def bireme_job(
    workers: Sequence[Host],
    servers: Sequence[Host],
    script: Path,
    env: Mapping[str, str] | None = None,
    *,
    stated: bool = True,
) -> Iterator[Job]:
    """Run a job of ours; the scheduler is on the first worker's host.

    Args:
        workers: Host of each worker, by rank.
        servers: Host of each server, by rank.
        script: What every process runs.
        env: More variables.
        stated: Tell every process the speed of its host's link.
    """
    common = {
        "BIREME_NUM_WORKERS": str(len(workers)),
        "BIREME_NUM_SERVERS": str(len(servers)),
        "BIREME_SCHEDULER_HOST": workers[0].address,
        "BIREME_SCHEDULER_PORT": "7707",
        "BIREME_SECRET": secrets.token_hex(32),
        "BIREME_JOB": f"bench{secrets.token_hex(4)}",
        "BIREME_START_TIMEOUT": str(START_S),
        "BIREME_HEARTBEAT_TIMEOUT": "60",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": _SOURCES,
    } | dict(env or {})
    roles = [("scheduler", 0, workers[0])]
    roles += [("server", rank, host) for rank, host in enumerate(servers)]
    roles += [("worker", rank, host) for rank, host in enumerate(workers)]
    jobs = []
    for role, rank, host in roles:
        own = {"BIREME_ROLE": role, "BIREME_RANK": str(rank), "BIREME_HOST": host.address}
        if stated:
            own["BIREME_LINK_MBPS"] = f"{host.rate_mbit:g}"
        jobs.append((host, common | own))
    with _running(jobs, script, len(workers)) as job:
        yield job


@contextlib.contextmanager
def gloo_job(
    workers: Sequence[Host],
    script: Path,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Iterator[Job]:
    """Run a group of ``torch.distributed`` with a process for each of ``workers``."""
    common = {
        "MASTER_ADDR": workers[0].address,
        "MASTER_PORT": "29950",
        "GLOO_SOCKET_IFNAME": "eth0",
        "WORLD_SIZE": str(len(workers)),
        "OMP_NUM_THREADS": "1",
    } | dict(env or {})
    jobs = [(host, common | {"RANK": str(rank)}) for rank, host in enumerate(workers)]
    with _running(jobs, script, len(workers), arguments) as job:
        yield job


@contextlib.contextmanager
def _running(
    processes: Sequence[tuple[Host, Mapping[str, str]]],
    script: Path,
    num_workers: int,
    arguments: Sequence[str] = (),
) -> Iterator[Job]:
    command = [sys.executable, str(script), *arguments]

    def starter(host: Host, env: Mapping[str, str]) -> Callable[[str], subprocess.Popen[str]]:
        return lambda path: host.start([*command, path], env)

    with launched([starter(*each) for each in processes], num_workers) as job:
        yield job


@contextlib.contextmanager
def launched(
    starters: Sequence[Callable[[str], subprocess.Popen[str]]], num_workers: int
) -> Iterator[Job]:
    """Run processes of which some become workers: they connect to the Unix socket they are told.

    Args:
        starters: Each starts a process, given the socket's path.
        num_workers: How many will connect.
    """
    # Paths of Unix sockets reach into every network namespace.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = f"{folder}/job"
        listener.bind(path)
        listener.listen()
        listener.settimeout(0.5)
        started: list[subprocess.Popen[str]] = []
        lines: list[Line] = []
        try:
            started += [start(path) for start in starters]
            lines += [_accept(listener, started) for _ in range(num_workers)]
            job = Job(lines)
            yield job
            job.close()
            for process in started:
                process.wait(60)
        finally:
            for line in lines:
                line.close()
            for process in started:
                if process.poll() is None:
                    process.terminate()
            for process in started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                if process.poll() is None:
                    process.kill()
                    process.wait()


def _accept(listener: socket.socket, started: Sequence[subprocess.Popen[str]]) -> Line:
    """Return the line to the next worker that is ready."""
    limit_s = time.monotonic() + START_S
    while time.monotonic() < limit_s:
        with contextlib.suppress(TimeoutError):
            return Line(listener.accept()[0])
        if any(process.poll() for process in started):
            raise JobError("a process of the job failed at its start")
    raise JobError(f"the job did not start within {START_S} s")
