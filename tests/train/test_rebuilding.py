import pytest
import torch
from torch import nn

from bireme.errors import ConfigError, DataError
from bireme.train.rebuilding import class_path, load_state, make_net


class Small(nn.Linear):
    def __init__(self):
        super().__init__(2, 1)


class NeedsSize(nn.Linear):
    def __init__(self, size):
        super().__init__(size, 1)


class NoNet:
    made = 0

    def __init__(self):
        NoNet.made += 1


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())


def _this_module():
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def test_a_class_is_found_again():
    assert type(make_net(class_path(Small()))).__name__ == "Small"
    assert isinstance(make_net(class_path(nn.ReLU())), nn.ReLU)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:Net", "cannot be imported"),
        ("torch.nn:NoSuchLayer", "cannot be imported"),
        ("torch.nn:", "cannot be imported"),
        ("", "cannot be imported"),
        (f"{__name__}:test.<locals>.Net", "cannot be imported"),
        ("os:system", "no torch.nn.Module"),
        (f"{__name__}:NoNet", "no torch.nn.Module"),
        (f"{__name__}:NeedsSize", r"needs arguments \(.*'size'"),
    ],
)
def test_the_rest_asks_for_a_net(path, message):
    with pytest.raises(ConfigError, match=f"{message}.*pass it as net="):
        make_net(path)
    assert NoNet.made == 0


def test_state_that_does_not_fit_changes_nothing():
    net = Small()
    before = net.weight.detach().clone()
    state = {"weight": torch.zeros(1, 2), "bias": torch.zeros(1)}
    for wrong, message in [
        ({"weight": state["weight"]}, "lacks 'bias'"),
        ({**state, "more": torch.zeros(1)}, "has 'more'"),
        ({**state, "bias": torch.zeros(2)}, r"'bias' is torch.float32 of shape \(2,\) there"),
        ({**state, "bias": torch.zeros(1).double()}, "float64"),
        ({**state, "bias": "text"}, "no tensor"),
    ]:
        with pytest.raises(DataError, match=message):
            load_state(net, wrong, "checkpoint x")
        assert torch.equal(net.weight, before)
    load_state(net, state, "checkpoint x")
    assert not net.weight.any()
