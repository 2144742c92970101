import itertools

import torch
from torch import nn

from bireme.kvstore import LocalStore
from bireme.observe.timeline import Timeline
from bireme.train.lineup import Lineup
from bireme.train.tracing import Tracing, timed


class Observed(LocalStore):
    """A store with a timeline."""

    def __init__(self):
        super().__init__("local")
        self._timeline = Timeline("unused", "worker 0")

    @property
    def timeline(self):
        """Where events go."""
        return self._timeline


def spans(timeline):
    return [event["name"] for event in timeline.events() if event["ph"] == "X"]


def test_layers_and_gradients_are_recorded_in_order_until_the_end():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1, bias=False))
    store = Observed()
    timeline = store.timeline
    tracing = Tracing(Lineup(model), store)
    model(torch.ones(1, 2)).sum().backward()
    with tracing.span("step"):
        pass
    found = spans(timeline)
    assert found[:3] == ["forward 0", "forward 1", "forward 2"]
    assert found[3] == "backward 2.weight"
    assert sorted(found[4:6]) == ["backward 0.bias", "backward 0.weight"]
    assert found[6:] == ["step"]
    events = [event for event in timeline.events() if event["ph"] == "X"]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in itertools.pairwise(events))
    tracing.close()
    model(torch.ones(1, 2)).sum().backward()
    assert len(spans(timeline)) == 7


def test_replicas_have_lanes():
    models = [nn.Linear(1, 1), nn.Linear(1, 1)]
    store = Observed()
    timeline = store.timeline
    tracing = Tracing(Lineup(models), store)
    models[1](torch.ones(1, 1))
    lanes = [event["args"]["name"] for event in timeline.events() if event["ph"] == "M"]
    assert lanes == ["worker 0", "compute 1"]
    tracing.close()


def test_only_what_takes_time_is_a_wait():
    timeline = Timeline("unused", "worker 0")
    assert timed(None, "wait", lambda: 3) == 3
    assert timed(timeline, "wait", lambda: 4) == 4

    def slow():
        end_s = timeline.now_s() + 1e-3
        while timeline.now_s() < end_s:
            pass

    timed(timeline, "wait", slow)
    assert spans(timeline) == ["wait"]


def test_without_a_timeline_there_is_nothing():
    model = nn.Linear(1, 1)
    for store in (None, LocalStore("local")):
        tracing = Tracing(Lineup(model), store)
        with tracing.span("step"):
            pass
        assert not model._forward_hooks
        assert not model.weight._post_accumulate_grad_hooks
        tracing.close()
