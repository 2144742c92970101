"""From servers to plain torch and back, exactly."""

import pytest
import torch
from tests.conformance.test_optimizers import CASES, STEPS, batch, make, net
from tests.integration.jobs import run_threads
from tests.update import custom
from torch import nn

import bireme
from bireme.errors import ConfigError, DataError, UnsupportedError
from bireme.kvstore import LocalStore, OptimizerSpec
from bireme.update.state_dicts import from_state_dict, to_state_dict

HALF = STEPS // 2
PARAMS = {name: {**cases[0], "lr": cases[0].get("lr", 0.01)} for name, cases in CASES.items()}


def test_it_is_public():
    assert bireme.optimizer_states.to_state_dict is to_state_dict


def gradients(model, number):
    model.zero_grad()
    output = model(batch(number))
    (output.square().mean() + output.mean()).backward()
    return [param.grad.clone() for param in model.parameters()]


def train(model, optimizer, numbers):
    for number in numbers:
        gradients(model, number)
        optimizer.step()


def weights(model):
    return [param.detach().clone() for param in model.parameters()]


def set_weights(model, values):
    for param, value in zip(model.parameters(), values, strict=True):
        param.data.copy_(value)


def on_servers(model, name, first, path, numbers, num_servers):
    """Go on in a store, from a file if one is given; return the weights."""
    names = [each for each, _ in model.named_parameters()]

    def work(session):
        with session.store("dist_sync") as store:
            store.set_optimizer(OptimizerSpec(name, PARAMS[name]))
            store.init(names, weights(model))
            if first is not None:
                store.load_optimizer_states(first)
            mine = net(name)
            for number in numbers:
                set_weights(mine, store.pull(names))
                store.push(names, gradients(mine, number))
            store.save_optimizer_states(path)
            return store.pull(names)

    return run_threads(1, num_servers, work, slice_bytes=128)[0]


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name, tmp_path):
    expected = net(name)
    train(expected, make(name, expected, PARAMS[name]), range(STEPS))

    # Servers, a file, plain torch.
    model = net(name)
    set_weights(model, on_servers(model, name, None, f"{tmp_path}/there", range(HALF), 3))
    optimizer = make(name, model, PARAMS[name])
    optimizer.load_state_dict(to_state_dict(f"{tmp_path}/there", model))
    train(model, optimizer, range(HALF, STEPS))
    for one, other in zip(weights(model), weights(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)

    # Plain torch, a file, servers, a folder, plain torch.
    model = net(name)
    optimizer = make(name, model, PARAMS[name])
    train(model, optimizer, range(3))
    from_state_dict(f"{tmp_path}/back", optimizer.state_dict(), model, name)
    folder = f"{tmp_path}/folder/"
    set_weights(model, on_servers(model, name, f"{tmp_path}/back", folder, range(3, 7), 2))
    optimizer = make(name, model, PARAMS[name])
    optimizer.load_state_dict(to_state_dict(folder, model, optimizer))
    train(model, optimizer, range(7, STEPS))
    for one, other in zip(weights(model), weights(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def grouped(model, *, swapped=False):
    groups = [{"params": [model.weight], "lr": 0.5}, {"params": [model.bias], "lr": 0.25}]
    return torch.optim.SGD(groups[::-1] if swapped else groups, lr=9.0, momentum=0.5)


def trained(optimizer_of):
    model = nn.Linear(2, 3)
    optimizer = optimizer_of(model)
    for param in model.parameters():
        param.grad = torch.full_like(param, float(param.dim()))
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("swapped", [False, True])
def test_groups_keep_their_numbers_and_order(tmp_path, swapped):
    model, optimizer = trained(lambda model: grouped(model, swapped=swapped))
    path = tmp_path / "states"
    with pytest.raises(ConfigError, match="the optimizer itself"):
        from_state_dict(path, optimizer.state_dict(), model, "sgd")
    from_state_dict(path, optimizer.state_dict(), model, optimizer)
    fresh = torch.optim.SGD(optimizer.param_groups, lr=1.0)
    for group in fresh.param_groups:
        group["lr"] = 77.0
    found = to_state_dict(path, model, fresh)
    assert [group["lr"] for group in found["param_groups"]] == (
        [0.25, 0.5] if swapped else [0.5, 0.25]
    )
    fresh.load_state_dict(found)
    for param in model.parameters():
        buffer = fresh.state[param]["momentum_buffer"]
        assert torch.equal(buffer, torch.full_like(param, float(param.dim())))
    # Without an optimizer, in the model's order.
    assert [group["lr"] for group in to_state_dict(path, model)["param_groups"]] == [0.5, 0.25]


def test_names_of_parameters_say_which_is_which(tmp_path):
    def named(model):
        params = list(model.named_parameters())
        return torch.optim.SGD(
            [{"params": params[1:], "lr": 0.25}, {"params": params[:1]}], lr=0.5, momentum=0.5
        )

    model, optimizer = trained(named)
    from_state_dict(tmp_path / "states", optimizer.state_dict(), model, "sgd")
    assert [group["lr"] for group in to_state_dict(tmp_path / "states", model)["param_groups"]] == [
        0.5,
        0.25,
    ]


def test_keys_of_a_trainer_numbers_and_others(tmp_path):
    model, plain = trained(lambda model: torch.optim.Adam(model.parameters(), lr=0.5))
    for number, keys in enumerate(
        [
            {"weight": "trainer0/weight", "bias": "trainer0/bias"},
            {"weight": 0, "bias": 1},
            {"weight": "W", "bias": "b"},
        ]
    ):
        path = str(tmp_path / str(number))
        from_state_dict(path, plain.state_dict(), model, plain, keys=keys)
        store = LocalStore()
        for name, param in model.named_parameters():
            store.init(keys[name], param.detach())
        store.set_optimizer(OptimizerSpec("adam", {"lr": 0.5}))
        store.load_optimizer_states(path)
        assert store.optimizer_states()[keys["bias"]]["step"] == 1
        if number == 2:
            with pytest.raises(ConfigError, match="say by keys="):
                to_state_dict(path, model)
            with pytest.raises(ConfigError, match="no parameter"):
                to_state_dict(path, model, keys={"other": 3})
        found = to_state_dict(path, model, keys=keys if number == 2 else None)
        assert found["param_groups"] == plain.state_dict()["param_groups"]
        assert found["state"].keys() == {0, 1}


def test_classes_by_import_path_are_never_imported_for_a_file(tmp_path):
    model, optimizer = trained(lambda model: custom.Lion(model.parameters(), lr=0.5))
    from_state_dict(tmp_path / "states", optimizer.state_dict(), model, optimizer)
    with pytest.raises(ConfigError, match="give to_state_dict the optimizer"):
        to_state_dict(tmp_path / "states", model)
    found = to_state_dict(tmp_path / "states", model, optimizer)
    optimizer.load_state_dict(found)
    assert found["param_groups"][0]["betas"] == (0.9, 0.99)


def test_what_does_not_fit(tmp_path):
    path = str(tmp_path / "states")
    model, optimizer = trained(lambda model: torch.optim.Adam(model.parameters()))
    saved = optimizer.state_dict()
    for given in ({}, {"state": {}}, {"state": 3, "param_groups": []}, None):
        with pytest.raises(ConfigError, match="no optimizer's state_dict"):
            from_state_dict(path, given, model, "adam")
    with pytest.raises(DataError):
        from_state_dict(path, {"state": {}, "param_groups": []}, model, "adam")
    with pytest.raises(ConfigError, match="has shape"):
        from_state_dict(path, saved, nn.Linear(3, 2), "adam")
    with pytest.raises(ConfigError, match="the model has 1"):
        from_state_dict(path, saved, nn.Linear(2, 3, bias=False), "adam")
    with pytest.raises(ConfigError, match="not one of the model"):
        from_state_dict(path, saved, nn.Linear(2, 3), optimizer)
    with pytest.raises(UnsupportedError):
        from_state_dict(path, saved, model, "lbfgs")
    from_state_dict(path, saved, model, "adam")
    with pytest.raises(ConfigError, match="are of Adam, but the optimizer is a SGD"):
        to_state_dict(path, model, torch.optim.SGD(model.parameters()))
    with pytest.raises(ConfigError, match="is in no group"):
        to_state_dict(path, model, torch.optim.Adam([model.weight]))
    with pytest.raises(ConfigError, match="no parameters of the model"):
        to_state_dict(path, nn.Sequential(model))
    with pytest.raises(FileNotFoundError):
        to_state_dict(tmp_path / "gone", model)
