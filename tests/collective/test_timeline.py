"""The timeline: Horovod's names, and valid JSON whatever happens."""

import json

import pytest

from bireme.collective.timeline import CollectiveTimeline, timeline_path
from bireme.errors import FileError


def test_the_file_is_valid_after_every_flush(tmp_path):
    path = tmp_path / "trace.json"
    timeline = CollectiveTimeline(path, mark_cycles=True)
    assert "start_time_since_epoch_in_micros" in json.loads(path.read_text())[0]["args"]
    timeline.cycle()
    timeline.negotiating("allreduce.a", "ALLREDUCE")
    timeline.submitted("allreduce.a", 1)
    timeline.flush()
    events = json.loads(path.read_text())
    assert [event.get("name") for event in events[1:]] == [
        "CYCLE_START",
        "process_name",
        "process_sort_index",
        "thread_name",
        "thread_name",
        "NEGOTIATE_ALLREDUCE",
        "1",
    ]
    timeline.negotiated("allreduce.a")
    timeline.begin("allreduce.a", "ALLREDUCE")
    timeline.end("allreduce.a", "float32", (2, 3))
    timeline.close()
    timeline.close()
    events = json.loads(path.read_text())
    assert events[-1]["args"] == {"dtype": "float32", "shape": "(2, 3)"}
    assert [event["ph"] for event in events if event["pid"] == 1][4:] == list("BXEBE")
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)


def test_cycles_are_marked_only_where_asked_for(tmp_path):
    timeline = CollectiveTimeline(tmp_path / "trace.json")
    timeline.cycle()
    timeline.close()
    assert "CYCLE_START" not in (tmp_path / "trace.json").read_text()


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path):
    with pytest.raises(FileError, match="timeline"):
        CollectiveTimeline(tmp_path / "missing" / "trace.json")


def test_nothing_is_recorded_after_the_end(tmp_path):
    path = tmp_path / "trace.json"
    timeline = CollectiveTimeline(path)
    timeline.close()
    before = path.read_bytes()
    timeline.begin("a", "ALLREDUCE")
    timeline.flush()
    assert path.read_bytes() == before


def test_a_rank_that_is_ahead_negotiates_beside_the_operation(tmp_path):
    path = tmp_path / "trace.json"
    timeline = CollectiveTimeline(path)
    timeline.negotiated("a")  # began before the recording
    timeline.begin("a", "ALLREDUCE")
    timeline.negotiating("a", "ALLREDUCE")
    timeline.end("a")
    timeline.end("a")
    timeline.close()
    events = [event for event in json.loads(path.read_text()) if event["ph"] in "BE"]
    lanes = [(event["ph"], event["tid"]) for event in events]
    assert lanes == [("B", 3), ("B", 2), ("E", 3)]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    timeline = CollectiveTimeline(path)
    before = path.read_bytes()

    class Full:
        """A file on a disk with room for ten bytes more."""

        def __init__(self, file):
            self._file, self._size = file, len(before) + 10

        def write(self, data):
            return self._file.write(data[: self._size - self._file.tell()])

        def __getattr__(self, name):
            return getattr(self._file, name)

    monkeypatch.setattr(timeline, "_file", Full(timeline._file))
    timeline.begin("a", "ALLREDUCE")
    timeline.flush()
    timeline.end("a")
    timeline.close()
    assert path.read_bytes() == before


def test_every_rank_writes_a_file_where_the_name_has_a_place_for_it(tmp_path):
    assert timeline_path(tmp_path / "t.{rank}.json", 3) == str(tmp_path / "t.3.json")
    assert timeline_path("t.json", 0) == "t.json"
    assert timeline_path("t.json", 1) is None
