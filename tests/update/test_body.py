"""An optimizer survives the way to a server, with the numbers of each key."""

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.update import OptimizerSpec, needs_whole_values, spec_of, to_body


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


def test_optimizers_that_look_at_whole_values():
    whole = {name for name in dir(torch.optim) if needs_whole_values(name)}
    assert whole == {"Adafactor", "Muon"}


def optimizers():
    classes = (getattr(torch.optim, name) for name in dir(torch.optim))
    return sorted(
        each.__name__
        for each in classes
        if isinstance(each, type)
        and issubclass(each, torch.optim.Optimizer)
        and each.__name__ not in ("Optimizer", "LBFGS", "SparseAdam")
    )


@pytest.mark.parametrize("name", optimizers())
def test_a_cut_value_trains_as_the_whole_one_unless_the_optimizer_needs_all_of_it(name):
    generator = torch.Generator().manual_seed(0)
    grads = [torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(4)]
    first = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    whole = trained(name, first, grads)
    parts = [trained(name, first[rows], [g[rows] for g in grads]) for rows in halves()]
    assert torch.allclose(whole, torch.cat(parts)) != needs_whole_values(name)


def halves():
    return slice(0, 2), slice(2, 6)


def trained(name, first, grads):
    param = first.clone()
    optimizer = OptimizerSpec(name, {"lr": 0.1}).build([param])
    for grad in grads:
        param.grad = grad.clone()
        optimizer.step()
    return param.detach()
