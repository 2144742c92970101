"""Visits hosts before a job does: asks each what it has, and lets them reach each other.

Called by ``bireme doctor --hosts``. Nothing is installed or left there: ``launch.probe`` goes over
the same way as the questions do, and ends with its visitor.
"""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bireme.errors import JobError
from bireme.launch import probe
from bireme.launch.survey_report import Finding, Reached, Reference

__all__ = ("Explain", "Visit", "Way", "survey")

_LOADER = "import sys;exec(eval(sys.stdin.readline()))"
_AT_ONCE = 64
_READ_BYTES = 1 << 16
_TOKEN_BYTES = 16

Way = Callable[[str, Sequence[str]], Sequence[str]]
"""Returns the command line that runs a command on a host, its standard streams being ours."""

Explain = Callable[[int | None, list[str]], str]
"""Says what went wrong and what to do, of an exit code and the lines that were printed."""


class Visit:
    """A probe that runs on a host.

    Args:
        command: Starts it.
        limit_s: How long an answer may take.
        explain: Says why there is none.
    """

    def __init__(self, command: Sequence[str], limit_s: float, explain: Explain) -> None:
        self._limit_s = limit_s
        self._explain = explain
        self._rest = b""
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._send(repr(Path(probe.__file__).read_text()))

    def ask(self, request: object) -> Any:
        """Return the answer to a request.

        Raises:
            JobError: There is none; says why, and what to do.
        """
        self._send(json.dumps(request))
        try:
            return json.loads(self._line())
        except json.JSONDecodeError as error:
            raise JobError(
                f"it answers with something else ({error}); a shell there prints a greeting, which "
                "must not be where there is no terminal"
            ) from error

    def close(self) -> None:
        """End the probe, and what leads to it."""
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        # Whoever does not take the question is asked for the answer, and has none.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        fd, deadline_s = self._process.stdout.fileno(), time.monotonic() + self._limit_s
        while b"\n" not in self._rest:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([fd], [], [], left_s)[0]:
                last = "".join(f" ({line})" for line in self._printed()[-1:])
                raise JobError(
                    f"no answer within {self._limit_s:g} s{last}; is it up, and does a firewall "
                    "let ssh through?"
                )
            data = os.read(fd, _READ_BYTES)
            if not data:
                raise JobError(self._explain(self._exit_code(), self._printed()))
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _exit_code(self) -> int:
        try:
            return self._process.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            return 1

    def _printed(self) -> list[str]:
        self._errors.seek(0)
        return self._errors.read(_READ_BYTES).decode(errors="replace").splitlines()


@dataclass(slots=True)
class _Stop:
    """One host on the tour."""

    host: str
    visit: Visit
    finding: Finding
    names: list[str]
    interfaces: dict[str, str]
    token: str
    port: int = 0


def survey(
    hosts: Sequence[str],
    reference: Reference,
    way: Way,
    explain: Callable[[str], Explain],
    *,
    python: str,
    path: Sequence[str] = (),
    limit_s: float = 20.0,
) -> list[Finding]:
    """Return what each host is and has, and whom it reaches.

    Every host tries to reach the first one, where the job's scheduler would be, and the next one.

    Args:
        hosts: At least one.
        reference: What to look for.
        way: How commands get to a host.
        explain: Returns what says why a host does not answer.
        python: The interpreter that the job would use.
        path: Folders in which it finds packages, beside its own.
        limit_s: How long a host may take for an answer.
    """
    command = (python, "-u", "-c", _LOADER)
    question = {"packages": list(reference.packages), "folder": reference.folder}
    request = {"facts": {**question, "path": list(path)}}

    def arrive(host: str) -> _Stop:
        visit = Visit(way(host, command), limit_s, explain(host))
        return _introduced(host, visit, request)

    def leave(stop: _Stop) -> None:
        stop.visit.close()

    with ThreadPoolExecutor(_AT_ONCE) as pool, contextlib.ExitStack() as stack:
        stops = []
        for stop in pool.map(arrive, hosts):
            stack.callback(pool.submit, leave, stop)
            stops.append(stop)
        there = [stop for stop in stops if not stop.finding.trouble]
        for _ in pool.map(_listen, there):
            pass
        tours = [(stop, list(_next_ones(index, there))) for index, stop in enumerate(there)]
        for _ in pool.map(lambda tour: _reach(*tour), tours):
            pass
        return [stop.finding for stop in stops]


def _introduced(host: str, visit: Visit, request: object) -> _Stop:
    """Ask twice: the first answer takes as long as it takes to get there."""
    stop = _Stop(host, visit, Finding(host=host), [host], {}, secrets.token_hex(_TOKEN_BYTES))
    try:
        visit.ask(request)
        before_s = time.time()
        said = visit.ask(request)
        after_s = time.time()
    except JobError as error:
        stop.finding = replace(stop.finding, trouble=str(error))
        return stop
    stop.names += [address for _, address in said["interfaces"]]
    stop.interfaces = {address: name for name, address in said["interfaces"]}
    stop.finding = Finding(
        host=host,
        python=said["python"],
        executable=said["executable"],
        packages=said["packages"],
        has_folder=said["has_folder"],
        skew_s=said["now_s"] - (before_s + after_s) / 2,
        doubt_s=(after_s - before_s) / 2,
    )
    return stop


def _listen(stop: _Stop) -> None:
    try:
        said = stop.visit.ask({"token": stop.token})
    except JobError as error:
        stop.finding = replace(stop.finding, trouble=str(error))
        return
    stop.port = said.get("port", 0)
    stop.finding = replace(stop.finding, port_error=said.get("error", ""))


def _next_ones(index: int, stops: Sequence[_Stop]) -> Iterator[_Stop]:
    """Yield the first stop and the one behind, without the stop itself and without any twice."""
    for other in dict.fromkeys((0, (index + 1) % len(stops))):
        if other != index and stops[other].port:
            yield stops[other]


def _reach(stop: _Stop, others: Sequence[_Stop]) -> None:
    if not others:
        return
    targets = [{"names": each.names, "port": each.port, "token": each.token} for each in others]
    try:
        said = stop.visit.ask({"connect": targets})
    except JobError as error:
        stop.finding = replace(stop.finding, trouble=str(error))
        return
    reached = []
    for other, answer in zip(others, said, strict=True):
        reached.append(_reached(stop, other.host, answer))
    stop.finding = replace(stop.finding, reached=tuple(reached))


def _reached(stop: _Stop, host: str, answer: dict[str, str]) -> Reached:
    source = answer.get("from", "")
    if source:
        source = f"{source} ({stop.interfaces.get(source, 'lo')})"
    return Reached(host=host, source=source, target=answer.get("to", ""), error=answer["error"])
