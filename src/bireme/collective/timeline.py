"""A timeline of named operations, as a file that trace viewers show. Called by the engines.

Each tensor is a process of the view with two lanes: a rank that is ahead may ask for an operation
again while another still carries it out. The names of events are Horovod's, so that its users'
tools read them. The file is whole JSON after every flush, whatever happens to the process then.
"""

import json
import threading
import time
from collections import Counter
from os import PathLike, fspath
from typing import Any

from bireme.errors import FileError

__all__ = ("CollectiveTimeline", "timeline_path")

_END = b"\n]\n"
_MOST_PENDING = 4096
_NEGOTIATION, _EXECUTION = range(2)


class CollectiveTimeline:
    """Spans of named operations.

    Args:
        path: File to write; what it held before is gone.
        mark_cycles: Also record when the engine starts a round of work.

    Raises:
        FileError: The file cannot be written.

    Guarantees:
        May be used from any thread. `flush` leaves a valid JSON file behind.

    Source:
        docs/timeline.rst of Horovod 0.28.1 (names and order of events); the trace event format of
        Chrome's viewer, which ui.perfetto.dev opens too. Lanes have numbers of their own, since
        Perfetto names threads by number alone; an end without a beginning is not written.
    """

    def __init__(self, path: str | PathLike[str], *, mark_cycles: bool = False) -> None:
        try:
            self._file = open(path, "wb", buffering=0)
        except OSError as error:
            raise FileError(f"cannot write the timeline {path}: {error}") from error
        self._marks_cycles = mark_cycles
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._open: Counter[int] = Counter()
        self._pending: list[dict[str, Any]] = []
        self._is_empty = True
        self._file.write(b"[" + _END)
        self._began_s, started_us = time.perf_counter(), int(time.time() * 1e6)
        started = {"start_time_since_epoch_in_micros": started_us}
        self._pending.append({"name": "process_name", "ph": "M", "pid": 0, "args": started})
        self.flush()

    def negotiating(self, name: str, kind: str) -> None:
        """Record that the first rank has submitted ``name``."""
        self._add(name, _NEGOTIATION, {"name": f"NEGOTIATE_{kind}", "ph": "B"})

    def submitted(self, name: str, rank: int) -> None:
        """Record that ``rank`` has submitted ``name``."""
        self._add(name, _NEGOTIATION, {"name": str(rank), "ph": "X", "dur": 0})

    def negotiated(self, name: str) -> None:
        """Record that every rank has submitted ``name``."""
        self._add(name, _NEGOTIATION, {"ph": "E"})

    def begin(self, name: str, what: str) -> None:
        """Record the start of an operation, or of an activity within it."""
        self._add(name, _EXECUTION, {"name": what, "ph": "B"})

    def end(self, name: str, dtype: str | None = None, shape: object = None) -> None:
        """Record the end of what began last on the row of ``name``."""
        event: dict[str, Any] = {"ph": "E"}
        if dtype is not None:
            event["args"] = {"dtype": dtype, "shape": str(shape)}
        self._add(name, _EXECUTION, event)

    def cycle(self) -> None:
        """Record that a round of work starts, where that is asked for."""
        if self._marks_cycles:
            with self._lock:
                self._pending.append(
                    {
                        "name": "CYCLE_START",
                        "ph": "i",
                        "s": "g",
                        "pid": 0,
                        "tid": 0,
                        "ts": self._now_us(),
                    }
                )

    def flush(self) -> None:
        """Write what has been recorded; a full disk ends the recording in silence."""
        with self._lock:
            self._write()

    def close(self) -> None:
        """Write the rest and free the file. Idempotent."""
        with self._lock:
            self._write()
            self._file.close()

    def _add(self, name: str, lane: int, event: dict[str, Any]) -> None:
        with self._lock:
            row = self._rows.get(name)
            if row is None:
                row = self._rows[name] = len(self._rows) + 1
                self._pending += _names_of(row, name)
            thread = 2 * row + lane
            if event["ph"] == "B":
                self._open[thread] += 1
            elif event["ph"] == "E":
                if not self._open[thread]:
                    return
                self._open[thread] -= 1
            self._pending.append(event | {"pid": row, "tid": thread, "ts": self._now_us()})
            if len(self._pending) >= _MOST_PENDING:
                self._write()

    def _now_us(self) -> int:
        return int((time.perf_counter() - self._began_s) * 1e6)

    def _write(self) -> None:
        if not self._pending or self._file.closed:
            return
        text = ",\n".join(json.dumps(event, separators=(",", ":")) for event in self._pending)
        self._pending.clear()
        lead = b"\n" if self._is_empty else b",\n"
        try:
            end = self._file.seek(-len(_END), 2)
            if not self._put(lead + text.encode() + _END):
                # The disk is full. What was there before stays whole.
                self._file.seek(end)
                self._put(_END)
                self._file.truncate()
                self._file.close()
        except OSError:
            self._file.close()
        self._is_empty = False

    def _put(self, data: bytes) -> bool:
        """Write, and return whether all of it found room."""
        try:
            return self._file.write(data) == len(data)
        except OSError:
            return False


def _names_of(row: int, name: str) -> list[dict[str, Any]]:
    """Return the events that name a row and its lanes, and put it in its place."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": row, "args": {"name": name}},
        {"name": "process_sort_index", "ph": "M", "pid": row, "args": {"sort_index": row}},
    ]
    for lane, label in enumerate(("negotiation", "operation")):
        thread = {"pid": row, "tid": 2 * row + lane}
        events.append({"name": "thread_name", "ph": "M", **thread, "args": {"name": label}})
    return events


def timeline_path(path: str | PathLike[str], rank: int) -> str | None:
    """Return the file that ``rank`` writes, or None.

    Args:
        path: What the user named; with ``{rank}`` in it every rank writes a file, else rank 0.
        rank: This process's.

    Example:
        >>> timeline_path("trace.json", 1), timeline_path("trace.{rank}.json", 1)
        (None, 'trace.1.json')
    """
    text = fspath(path)
    if "{rank}" in text:
        return text.replace("{rank}", str(rank))
    return text if rank == 0 else None
