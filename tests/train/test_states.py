import os

import pytest
import torch

from bireme.errors import ConfigError, DataError
from bireme.train.states import check_states, load_states, save_states, states_of, take_over


def make(kind=torch.optim.Adam, shape=(2, 3)):
    param = torch.zeros(shape, requires_grad=True)
    optimizer = kind([param])
    param.grad = torch.ones(shape)
    if kind is torch.optim.LBFGS:
        optimizer.step(lambda: param.sum())
    else:
        optimizer.step()
    return optimizer


def test_what_is_written_is_torchs_own_format(tmp_path):
    states = make().state_dict()
    path = tmp_path / "a"
    save_states(path, states)
    assert str(torch.load(path, weights_only=True)) == str(states)
    assert str(load_states(str(path))) == str(states)
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("name", ["", ".", "/", "folder"])
def test_a_path_that_names_no_file_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="names no file"):
        save_states(name, make().state_dict())
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_has_the_permissions_of_any_new_file(tmp_path):
    save_states(tmp_path / "a", make().state_dict())
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_truncated_file_is_said_to_be_one(tmp_path):
    path = tmp_path / "a"
    save_states(path, make().state_dict())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="holds no optimizer states"):
        load_states(path)


class Planted:
    def __reduce__(self):
        return (os.system, ("true",))


def test_a_file_with_code_in_it_is_refused(tmp_path):
    torch.save({"state": Planted(), "param_groups": []}, tmp_path / "a")
    with pytest.raises(DataError, match="holds no optimizer states"):
        load_states(tmp_path / "a")


def test_states_of_another_model_are_refused():
    own = make()
    check_states(own.state_dict(), own)
    with pytest.raises(ConfigError, match="lack betas, eps, so they are not those of a Adam"):
        check_states(make(torch.optim.SGD).state_dict(), own)
    with pytest.raises(ConfigError, match=r"'exp_avg' has shape \(2, 4\)"):
        check_states(make(shape=(2, 4)).state_dict(), own)
    with pytest.raises(ConfigError, match=r"sizes \[2\]"):
        check_states({"state": {}, "param_groups": [{"params": [0, 1]}]}, own)


@pytest.mark.parametrize(
    "states",
    [
        None,
        {"state": {}},
        {"state": {}, "param_groups": 3},
        {"state": {}, "param_groups": [{}]},
        {"state": {}, "param_groups": [[]]},
        {"state": [], "param_groups": [{"params": [0]}]},
        {"state": {0: 3}, "param_groups": [{"params": [0]}]},
    ],
)
def test_what_has_not_the_form_of_states_is_refused(states):
    with pytest.raises(ConfigError, match="'state' and 'param_groups'"):
        check_states(states, make())


@pytest.mark.parametrize("kind", [torch.optim.Adafactor, torch.optim.LBFGS, torch.optim.Rprop])
def test_states_of_other_forms_are_accepted(kind):
    own = make(kind, (3,) if kind is torch.optim.LBFGS else (2, 3))
    check_states(own.state_dict(), own)


class Steps:
    """Local steps, of which the trainer's states are one more entry."""

    def __init__(self, refusal=None):
        self.refusal = refusal
        self.loaded = None

    def state(self):
        return {"step": 3}

    def check(self, state):
        if self.refusal is not None:
            raise self.refusal

    def load(self, state):
        self.loaded = state


def test_local_steps_are_one_entry_more():
    optimizer, steps = make(), Steps()
    states = states_of(optimizer, steps)
    assert set(states) - set(states_of(optimizer, None)) == {"local"}
    take_over(states, optimizer, steps)
    assert steps.loaded == {"step": 3}
    take_over(states_of(optimizer, None), optimizer, steps)
    take_over(states, optimizer, None)


def test_steps_that_are_refused_leave_the_optimizer():
    optimizer, other = make(), make()
    other.param_groups[0]["lr"] = 9.0
    refused = states_of(other, Steps())
    with pytest.raises(ConfigError, match="fragments"):
        take_over(refused, optimizer, Steps(ConfigError("other fragments")))
    assert optimizer.param_groups[0]["lr"] == 1e-3


def test_an_optimizer_that_fails_to_load_gets_its_states_back():
    optimizer, other = make(), make()
    other.param_groups[0]["lr"] = 9.0
    calls = []

    def fail_once(*_):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("refused")

    optimizer.register_load_state_dict_post_hook(fail_once)
    with pytest.raises(RuntimeError, match="refused"):
        take_over(other.state_dict(), optimizer, None)
    assert optimizer.param_groups[0]["lr"] == 1e-3
