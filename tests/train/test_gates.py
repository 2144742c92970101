import copy
import gc

import pytest
import torch
from tests.train.overlapping import Net
from torch import nn

from bireme.train.gates import Gates
from bireme.train.lineup import Lineup

TOKENS = torch.zeros(1, 3, dtype=torch.int64)


class Asked:
    """What the gates of a model ask for."""

    def __init__(self, model):
        self.lineup = Lineup(model)
        self.calls = []
        self.gates = Gates(self.lineup, self._wanted)

    def _wanted(self, positions):
        self.calls.append(None if positions is None else list(positions))

    def during(self, action):
        """The names of what was asked for, call by call."""
        self.calls.clear()
        action()
        names = self.lineup.names
        return [None if each is None else {names[index] for index in each} for each in self.calls]


def test_each_module_waits_for_its_own_parameters_before_its_forward():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 1)))
    asked = Asked(model)
    model(torch.ones(1, 2))
    assert asked.during(lambda: model(torch.ones(1, 2))) == [
        {"0.weight", "0.bias"},
        {"2.0.weight", "2.0.bias"},
    ]
    assert asked.gates.without() == []


def test_what_is_needed_first_is_most_urgent_whatever_the_order_of_names():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.last(self.first(x))

    model = Backwards()
    asked = Asked(model)
    model(torch.ones(1, 2))
    priority = {name: asked.gates.priority(i) for i, name in enumerate(asked.lineup.names)}
    assert 0 > priority["first.weight"] == priority["first.bias"] > priority["last.weight"]


def test_modules_that_are_never_called_are_waited_for_above():
    model = Net()
    asked = Asked(model)
    model(TOKENS)
    calls = asked.during(lambda: model(TOKENS))
    # The hidden layer is used functionally, by the model; the projection of the attention too.
    assert {"hidden.weight", "hidden.bias", "branch.weight", "never.bias"} <= calls[0]
    attention = next(each for each in calls if "attend.in_proj_weight" in each)
    assert "attend.out_proj.weight" in attention
    # A tied one is waited for at each place, so also at the first.
    assert [each for each in calls if "embed.weight" in each] == [{"embed.weight"}] * 2


def test_what_nobody_would_wait_for_is_known():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    asked = Asked(model)
    assert asked.gates.without() == [0, 1, 2, 3]
    model[1](torch.ones(1, 2))
    assert asked.gates.without() == [0, 1]
    model[0](torch.ones(1, 2))
    assert asked.gates.without() == []


def test_reading_and_loading_a_state_asks_for_everything():
    model = nn.Sequential(nn.Linear(2, 2))
    asked = Asked(model)
    assert asked.during(model.state_dict)[0] is None
    assert asked.during(model[0].state_dict) == [None]
    assert asked.during(lambda: model.load_state_dict(model.state_dict()))[0] is None


@pytest.mark.parametrize("end", ["close", "collect"])
def test_no_hook_outlives_the_gates(end):
    model = nn.Sequential(nn.Linear(2, 2))
    asked = Asked(model)
    twin = copy.deepcopy(model)
    if end == "close":
        asked.gates.close()
    else:
        asked.gates = None
        gc.collect()
    model(torch.ones(1, 2))
    assert not model[0]._forward_pre_hooks
    assert asked.calls == []
    assert torch.equal(twin(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_copies_have_gates_that_do_nothing():
    model = nn.Sequential(nn.Linear(2, 2))
    asked = Asked(model)
    twin = copy.deepcopy(model)
    assert asked.during(lambda: twin(torch.ones(1, 2))) == []
    assert asked.during(twin.state_dict) == []


def test_compiled_modules_are_waited_for_as_one():
    class Wrapper(nn.Module):
        """As ``torch.compile`` wraps a module."""

        def __init__(self, module):
            super().__init__()
            self._orig_mod = module

        def forward(self, x):
            return self._orig_mod(x)

    model = nn.Sequential(nn.Linear(2, 2), Wrapper(nn.Sequential(nn.Linear(2, 2))))
    asked = Asked(model)
    model(torch.ones(1, 2))
    assert asked.during(lambda: model(torch.ones(1, 2)))[-1] == {
        "1._orig_mod.0.weight",
        "1._orig_mod.0.bias",
    }
    assert not model[1]._orig_mod[0]._forward_pre_hooks


def test_a_module_compiled_in_place_is_waited_for_above():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1]._compiled_call_impl = model[1]._call_impl
    asked = Asked(model)
    model(torch.ones(1, 2))
    assert asked.during(lambda: model(torch.ones(1, 2)))[0] == {"1.weight", "1.bias"}
