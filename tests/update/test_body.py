"""An optimizer survives the way to a server, with the numbers of each key."""

import sys

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import BiremeError, ConfigError
from bireme.update import OptimizerSpec, own_numbers, spec_of, to_body


def over_the_wire(body):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(body))


@given(
    st.floats(1e-6, 10),
    st.dictionaries(st.sampled_from("abc"), st.floats(0, 4)),
    st.dictionaries(st.sampled_from("abc"), st.floats(0, 4)),
)
def test_every_key_gets_its_own_numbers(lr, lr_mult, wd_mult):
    params = {"lr": lr, "weight_decay": 0.1, "betas": (0.8, 0.9)}
    spec = OptimizerSpec("adamw", params, lr_mult=lr_mult, wd_mult=wd_mult, rescale_grad=0.5)
    ids = {"a": 7, "b": 8, "c": 9}
    body = over_the_wire(to_body(spec, ids))
    for key, key_id in ids.items():
        found = spec_of(body, key_id)
        assert found.name == "AdamW"
        assert found.rescale_grad == 0.5
        assert found.arguments(None) == spec.arguments(key)


def test_keys_declared_later_have_the_common_numbers():
    spec = OptimizerSpec("sgd", {"lr": 0.5}, lr_mult={"late": 2.0})
    assert spec_of(to_body(spec, {}), 3).params["lr"] == 0.5
    assert spec_of(to_body(spec, {"late": 3}), 3).params["lr"] == 1.0


def test_only_keys_with_numbers_of_their_own_are_listed():
    spec = OptimizerSpec("sgd", wd_mult={"a": 0.0}, groups={"b": {"lr": 1.0}})
    assert set(own_numbers(to_body(spec, {"a": 1, "b": 2, "c": 3}))) == {1, 2}


def test_parameter_groups_travel():
    weight, bias = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([{"params": [weight]}, {"params": [bias], "lr": 0.25}], lr=0.5)
    spec = OptimizerSpec.from_optimizer(optimizer, keys=["weight", "bias"])
    body = over_the_wire(to_body(spec, {"weight": 0, "bias": 1}))
    assert [spec_of(body, key_id).params["lr"] for key_id in (0, 1)] == [0.5, 0.25]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "SGD"},
        {"name": "SGD", "params": {"lr": 0.1}, "rescale_grad": 1.0, "own": [1]},
        {"name": "os.system", "params": {}, "rescale_grad": 1.0, "own": []},
        {"name": "SGD", "params": {"lr": -1.0}, "rescale_grad": 1.0, "own": []},
        {"name": "SGD", "params": {"lr": float("nan")}, "rescale_grad": 1.0, "own": []},
    ],
)
def test_what_is_no_optimizer_is_refused(body):
    with pytest.raises(ConfigError):
        spec_of(body, None)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "os:system"},
        {"name": "SGD.__init__"},
        {"name": "__import__"},
        {"name": "torch.optim:SGD"},
        {"name": "torch.optim:__builtins__"},
        {"name": ["SGD"]},
        {"name": "x" * 100_000},
        {"name": "Trainer"},
        {"params": [["lr", 0.1]]},
        {"params": None},
        {"params": {"__class__": 1}},
        {"params": {"params": []}},
        {"params": {"lr": 1 << 63}},
        {"params": {"lr": float("inf")}},
        {"params": {"lr": [0.1]}},
        {"params": {"lr": {"x": 1}}},
        {"params": {"lr": b"0.1"}},
        {"params": {"momentum": [[[0.1]]]}},
        {"params": {"momentum": [0.1] * 100_000}},
        {"params": {3: 0.1}},
        {"own": [[1, 2, 3]]},
        {"own": [[[], {}]]},
        {"own": 7},
        {"own": [[7, {"lr": "a"}]]},
        {"rescale_grad": "1"},
        {"rescale_grad": float("nan")},
        {"rescale_grad": [1.0]},
    ],
)
def test_hostile_optimizers_are_refused(change):
    body = {"name": "SGD", "params": {"lr": 0.1}, "rescale_grad": 1.0, "own": [], **change}
    with pytest.raises(ConfigError):
        spec_of(body, 7)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["name", "params", "own", "rescale_grad"]), anything)
    | st.fixed_dictionaries(
        {
            "name": st.sampled_from(["SGD", "adam", "Muon"]),
            "params": st.dictionaries(st.sampled_from(["lr", "betas", "momentum"]), anything),
            "own": st.lists(st.tuples(st.integers(0, 2), anything)),
            "rescale_grad": st.just(1.0) | anything,
        }
    )
)
def test_whatever_is_sent_is_an_optimizer_or_an_error_of_ours(body):
    try:
        spec = spec_of(body, 1)
    except BiremeError:
        return
    assert spec.build([torch.zeros(1, 1)])


def test_only_allowed_modules_are_imported(tmp_path, monkeypatch):
    (tmp_path / "bireme_test_trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    body = {"name": "bireme_test_trap:Lion", "params": {}, "rescale_grad": 1.0, "own": []}
    for allowed in ((), {"bireme_test"}, {"bireme_test_trap:Tiger"}, {"bireme_test_trap.sub"}):
        with pytest.raises(ConfigError, match="--allow-optimizer bireme_test_trap"):
            spec_of(body, None, allowed)
    assert "bireme_test_trap" not in sys.modules
