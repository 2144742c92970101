import json
import threading

import pytest

from bireme.errors import ConfigError
from bireme.observe import timeline as module
from bireme.observe.timeline import Timeline, merge, path_of


def of(events, phase):
    return [event for event in events if event["ph"] == phase]


def test_spans_and_moments_have_lanes_and_times(tmp_path):
    timeline = Timeline(tmp_path / "t.json", "worker 0")
    began_s = timeline.now_s()
    timeline.span("compute", "forward", began_s, began_s + 0.25, layer=3)
    timeline.crossing("sent", "push w[0]", began_s, began_s + 0.5)
    timeline.crossing("sent", "push w[1]", began_s + 0.1, began_s + 0.2)
    timeline.moment("received", "value w[0]", bytes=7)
    timeline.write()
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in of(events, "M") if "tid" in event}
    assert set(names.values()) == {"compute", "sent", "received"}
    (span,) = of(events, "X")
    assert (span["name"], names[span["tid"]], span["args"]) == ("forward", "compute", {"layer": 3})
    assert span["dur"] == pytest.approx(250_000)
    begins, ends = of(events, "b"), of(events, "e")
    assert [each["id"] for each in begins] == [each["id"] for each in ends] == [1, 2]
    assert ends[0]["ts"] - begins[0]["ts"] == pytest.approx(500_000, abs=1)
    assert of(events, "i")[0]["args"] == {"bytes": 7}


def test_slices_are_called_by_their_keys():
    timeline = Timeline("unused", "worker 0")
    timeline.names[4] = "conv.weight"
    assert (timeline.label(4, 2), timeline.label(5, 0)) == ("conv.weight[2]", "5[0]")


def test_threads_record_at_once():
    timeline = Timeline("unused", "worker 0")

    def record():
        for _ in range(200):
            timeline.crossing("sent", "push", 0.0, 1.0)

    threads = [threading.Thread(target=record) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    begins = of(timeline.events(), "b")
    assert len({event["id"] for event in begins}) == len(begins) == 1600


def test_it_does_not_grow_without_end(monkeypatch):
    monkeypatch.setattr(module, "_MOST_EVENTS", 3)
    timeline = Timeline("unused", "server 1")
    for _ in range(5):
        timeline.moment("received", "push")
    assert len(of(timeline.events(), "i")) == 3
    assert of(timeline.events(), "M")[0]["args"]["name"] == "server 1 (2 events dropped)"


def test_each_process_has_a_file(tmp_path):
    assert path_of("a/trace.json", "server", 2).as_posix() == "a/trace.server2.json"
    assert path_of("trace", "scheduler", None).name == "trace.scheduler"


def test_files_are_joined(tmp_path):
    paths = []
    for rank in range(2):
        timeline = Timeline(tmp_path / f"{rank}.json", f"worker {rank}")
        timeline.crossing("sent", "push", 0.0, 1.0)
        timeline.write()
        paths.append(tmp_path / f"{rank}.json")
    assert merge(paths, tmp_path / "all.json") == 8
    events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2}
    assert len({event["id"] for event in of(events, "b")}) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"traceEvents": 3}', '{"traceEvents": [3]}'])
def test_what_is_no_timeline_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.json is no timeline"):
        merge([path], tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()


def test_files_that_cannot_be_reached(tmp_path):
    with pytest.raises(ConfigError, match="no timeline"):
        merge([tmp_path / "none.json"], tmp_path / "all.json")
    with pytest.raises(ConfigError, match="cannot write"):
        merge([], tmp_path / "none" / "all.json")
    with pytest.raises(ConfigError, match="cannot write the timeline"):
        Timeline(tmp_path / "none" / "t.json", "worker 0").write()
