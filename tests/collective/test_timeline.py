"""The timeline: Horovod's names, and valid JSON whatever happens."""

import json

import pytest

from bireme.collective.timeline import CollectiveTimeline
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
    assert [event["ph"] for event in events if event["pid"] == 1][2:] == list("BXEBE")
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
