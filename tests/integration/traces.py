"""Reads timelines as Perfetto's importer does, and complains where that one would."""

import json
from collections import defaultdict
from typing import NamedTuple


class Span(NamedTuple):
    """What happened from when to when, by the machine's clock."""

    row: str
    name: str
    began_s: float
    ended_s: float


def read(path):
    """Return the finished spans of a timeline and the names of events; see Chrome's trace format.

    It is an array of events. Each has a phase, a process and, but for metadata, a thread and a time
    in microseconds; in a thread, which has one process, spans lie in each other: ``B`` opens one
    and ``E`` closes the one that was opened last.
    """
    events = json.loads(path.read_text())
    assert isinstance(events, list)
    began_us = events[0]["args"]["start_time_since_epoch_in_micros"]
    rows, owners, latest = {}, {}, 0
    opened, spans = defaultdict(list), []
    for event in events:
        phase, process = event["ph"], event["pid"]
        assert phase in set("MBEXi"), event
        assert isinstance(process, int), event
        if phase == "M":
            if event["name"] == "process_name":
                # Process 0 stands for all, and has no name.
                rows[process] = event["args"].get("name", "")
            continue
        thread, at_us = event["tid"], event["ts"]
        assert isinstance(thread, int), event
        assert isinstance(at_us, int), event
        assert at_us >= latest, "times go back"
        assert owners.setdefault(thread, process) == process, "one number for two threads"
        assert process in rows, "an event of a process without a name"
        latest = at_us
        at_s = (began_us + at_us) / 1e6
        if phase == "B":
            opened[thread].append((event["name"], at_s))
        elif phase == "E":
            assert opened[thread], "an end without a beginning"
            name, since_s = opened[thread].pop()
            spans.append(Span(rows[process], name, since_s, at_s))
        elif phase == "X":
            assert event["dur"] >= 0, event
        else:
            assert event["s"] in set("gpt"), event
    return spans, {event.get("name") for event in events}
