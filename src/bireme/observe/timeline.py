"""A timeline of one process, as a file that trace viewers show.

Made where ``BIREME_TIMELINE`` names a file; where it does not, there is no timeline, and whoever
would record into one looks at a ``None``. The format is that of Chrome's trace viewer, which
``ui.perfetto.dev`` opens too; ``bireme timeline`` joins the files of a job's processes.
"""

import itertools
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bireme.errors import ConfigError

__all__ = ("Timeline", "merge", "path_of")

_MOST_EVENTS = 1_000_000
"""About 100 MB of file; later events are counted and dropped."""


class Timeline:
    """Spans and moments of one process, in lanes.

    Args:
        path: File to write.
        process: Name of the process, such as ``worker 0``.

    Guarantees:
        May be used from any thread. Times are those of the machine's wall clock at the start and
        of a steady clock from there, so processes of one machine agree.

    Example:
        >>> timeline = Timeline("/tmp/trace.json", "worker 0")
        >>> began_s = timeline.now_s()
        >>> timeline.span("compute", "forward", began_s, began_s + 0.5)
        >>> [event["name"] for event in timeline.events() if event["ph"] == "X"]
        ['forward']
    """

    def __init__(self, path: str | os.PathLike[str], process: str) -> None:
        self._path = Path(path)
        self._process = process
        self._offset_s = time.time() - time.perf_counter()
        self._lock = threading.Lock()
        self._lanes: dict[str, int] = {}
        self._events: list[dict[str, object]] = []
        self._numbers = itertools.count(1)
        self._num_dropped = 0
        self.names: dict[int, str] = {}
        """What keys are called, by their numbers on the wire."""

    def now_s(self) -> float:
        """Return the time that :meth:`span` and :meth:`moment` take."""
        return time.perf_counter()

    def span(self, lane: str, name: str, began_s: float, ended_s: float, **details: object) -> None:
        """Record what took from ``began_s`` to ``ended_s``; spans of a lane may lie in each other.

        Args:
            lane: Row of the view.
            name: What happened.
            began_s: From :meth:`now_s`.
            ended_s: From :meth:`now_s`.
            details: Plain data.
        """
        self._add(
            lane, {"name": name, "ph": "X", "dur": 1e6 * (ended_s - began_s)}, began_s, details
        )

    def crossing(
        self, lane: str, name: str, began_s: float, ended_s: float, **details: object
    ) -> None:
        """Record a span that may overlap others of its lane, such as a message on its way."""
        number = next(self._numbers)
        for phase, at_s in (("b", began_s), ("e", ended_s)):
            event: dict[str, object] = {"name": name, "ph": phase, "cat": lane, "id": number}
            self._add(lane, event, at_s, details)

    def moment(self, lane: str, name: str, **details: object) -> None:
        """Record something that happened now."""
        self._add(lane, {"name": name, "ph": "i", "s": "t"}, self.now_s(), details)

    def label(self, key_id: int, index: int) -> str:
        """Return what a slice is called: the key's name and the slice's number."""
        return f"{self.names.get(key_id, key_id)}[{index}]"

    def events(self) -> list[dict[str, object]]:
        """Return the events so far, with the names of process and lanes."""
        with self._lock:
            lanes, events = dict(self._lanes), list(self._events)
        pid = os.getpid()
        names: list[dict[str, object]] = [
            {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": self._process}}
        ]
        for lane, number in lanes.items():
            arguments = {"name": lane}
            names.append(
                {"name": "thread_name", "ph": "M", "pid": pid, "tid": number, "args": arguments}
            )
        if self._num_dropped:
            arguments = {"name": f"{self._process} ({self._num_dropped} events dropped)"}
            names[0]["args"] = arguments
        return [*names, *events]

    def write(self) -> None:
        """Write the file; what it held before is gone.

        Raises:
            ConfigError: It cannot be written.
        """
        try:
            self._path.write_text(json.dumps({"traceEvents": self.events()}))
        except OSError as error:
            raise ConfigError(f"cannot write the timeline: {error}") from error

    def _add(
        self, lane: str, event: dict[str, object], at_s: float, details: Mapping[str, object]
    ) -> None:
        with self._lock:
            if len(self._events) >= _MOST_EVENTS:
                self._num_dropped += 1
                return
            number = self._lanes.setdefault(lane, len(self._lanes) + 1)
            event |= {"ts": 1e6 * (self._offset_s + at_s), "pid": os.getpid(), "tid": number}
            if details:
                event["args"] = dict(details)
            self._events.append(event)


def path_of(template: str, role: str, rank: int | None) -> Path:
    """Return the file of one process of a job.

    Example:
        >>> path_of("out/trace.json", "worker", 3).as_posix()
        'out/trace.worker3.json'
    """
    path = Path(template)
    return path.with_name(f"{path.stem}.{role}{'' if rank is None else rank}{path.suffix}")


def merge(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> int:
    """Join the files of several processes into one; return how many events it has.

    Raises:
        ConfigError: A file cannot be read, is no timeline, or the result cannot be written.
    """
    events: list[object] = []
    for number, path in enumerate(paths):
        events += [_renumbered(event, number) for event in _read(path)]
    try:
        Path(out).write_text(json.dumps({"traceEvents": events}))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error}") from error
    return len(events)


def _read(path: str | os.PathLike[str]) -> list[dict[str, object]]:
    try:
        found = json.loads(Path(path).read_text())["traceEvents"]
        if all(isinstance(event, dict) for event in found):
            return list(found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} is no timeline: {error}") from error
    raise ConfigError(f"{path} is no timeline: an event is no object")


def _renumbered(event: dict[str, object], number: int) -> dict[str, object]:
    # Processes of several machines may have the same number; spans that cross are told apart by
    # theirs, whatever the process.
    fresh = event | {"pid": number + 1}
    if "id" in event:
        fresh["id"] = f"{number}.{event['id']}"
    return fresh
