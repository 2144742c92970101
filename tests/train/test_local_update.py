import copy
import io

import pytest
import torch
from tests.integration.jobs import run_threads
from tests.train import local_reference as reference
from torch import nn

import bireme
from bireme.errors import ConfigError, StateError
from bireme.kvstore.dist.options import dist_options

EVERY = 4


def options(**local):
    steps = bireme.LocalSteps(**{"every": EVERY, **local})
    return dist_options("dist_local", {"local": steps}, staleness=0)


def trainer_of(session, net, local, lr=0.05):
    store = session.store("dist_local", options(**local))
    return bireme.Trainer(net, torch.optim.AdamW(nets(net)[0].parameters(), lr=lr), store)


def nets(net):
    return net if isinstance(net, list) else [net]


def steps_of(net, trainer, numbers):
    for number in numbers:
        trainer.zero_grad()
        reference.loss_of(net, trainer.kvstore.rank, number).backward()
        trainer.step(num_samples=reference.samples(trainer.kvstore.rank))


def values(net):
    return [param.detach().clone() for param in net.parameters()]


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(
    "local",
    [
        {"outer": "nesterov"},
        {"outer": "nesterov", "fragments": 2, "delay": 3},
        {"outer": "elastic", "fragments": 3, "delay": 1},
    ],
    ids=["plain", "streaming", "elastic"],
)
def test_a_run_goes_on_bit_for_bit_from_its_saved_state(local):
    saved = [None, None]

    def whole(session):
        net = reference.make_net()
        trainer = trainer_of(session, net, local)
        rank = trainer.kvstore.rank
        # Saved in the middle of an exchange where there is a delay.
        steps_of(net, trainer, range(1, 7))
        saved[rank] = through_a_file((net.state_dict(), trainer.state_dict()))
        steps_of(net, trainer, range(7, 14))
        trainer.kvstore.close()
        return values(net)

    def second_half(session):
        torch.manual_seed(99)
        net = copy.deepcopy(reference.make_net())
        nn.init.zeros_(net[0].weight)
        trainer = trainer_of(session, net, local, lr=1.0)
        model, states = saved[trainer.kvstore.rank]
        net.load_state_dict(model)
        trainer.load_state_dict(states)
        steps_of(net, trainer, range(7, 14))
        trainer.kvstore.close()
        return values(net)

    wanted, found = run_threads(2, 1, whole), run_threads(2, 1, second_half)
    for one, other in zip(wanted, found, strict=True):
        assert all(map(torch.equal, one, other))


def test_devices_of_a_worker_are_in_step_all_the_time():
    def work(session):
        pair = [reference.make_net(), reference.make_net()]
        trainer = trainer_of(session, pair, {})
        rank = trainer.kvstore.rank
        for number in range(1, 8):
            trainer.zero_grad()
            for device, net in enumerate(pair):
                reference.loss_of(net, 2 * rank + device, number).backward()
            counts = [reference.samples(2 * rank + device) for device in range(2)]
            trainer.step(num_samples=counts)
            assert all(map(torch.equal, values(pair[0]), values(pair[1])))
        trainer.sync_parameters()
        assert all(map(torch.equal, values(pair[0]), values(pair[1])))
        trainer.kvstore.close()
        return values(pair[0])

    one, other = run_threads(2, 1, work)
    assert all(map(torch.equal, one, other))


def test_a_step_that_overflows_on_one_worker_counts_like_the_others():
    def work(session):
        net = reference.make_net(torch.float32)
        trainer = trainer_of(session, net, {})
        rank = trainer.kvstore.rank
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for number in range(1, 2 * EVERY + 1):
            trainer.zero_grad()
            scaler.scale(reference.loss_of(net, rank, number)).backward()
            if rank == 1 and number in (2, 3):
                net[0].weight.grad[0, 0] = float("inf")
            before = values(net)
            scaler.step(trainer)
            stood_still = all(map(torch.equal, before, values(net)))
            assert stood_still is (rank == 1 and number in (2, 3))
            scaler.update()
        trainer.sync_parameters()
        trainer.kvstore.close()
        return values(net), scaler.get_scale()

    (one, high), (other, low) = run_threads(2, 1, work)
    assert all(map(torch.equal, one, other))
    assert (high, low) == (8.0, 2.0)


def test_scaled_steps_are_those_without_a_scaler():
    found = []
    for scale in (None, 1024.0):
        net = reference.make_net(torch.float32)
        trainer = bireme.Trainer(
            net, "sgd", "dist_local", optimizer_params={"lr": 0.1}, local=bireme.LocalSteps(every=2)
        )
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None)
        for number in range(5):
            trainer.zero_grad()
            scaler.scale(reference.loss_of(net, 1, number)).backward()
            scaler.step(trainer)
            scaler.update()
        found.append(values(net))
        trainer.kvstore.close()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_worker_without_samples_meets_the_others_and_weighs_nothing():
    def work(session):
        net = reference.make_net()
        trainer = trainer_of(session, net, {"every": 2})
        rank = trainer.kvstore.rank
        for number in range(1, 3):
            trainer.zero_grad()
            reference.loss_of(net, rank, number).backward()
            trainer.step(num_samples=3 * rank)
            if number == 1:
                own = values(net)
        trainer.kvstore.close()
        return own, values(net)

    (idle, one), (_, other) = run_threads(2, 1, work)
    assert all(map(torch.equal, idle, values(reference.make_net())))
    assert all(map(torch.equal, one, other))
    straight = reference.make_net()
    optimizer = torch.optim.AdamW(straight.parameters(), lr=0.05)
    for number in range(1, 3):
        optimizer.zero_grad()
        reference.loss_of(straight, 1, number).backward()
        optimizer.step()
    for mine, wanted in zip(one, values(straight), strict=True):
        torch.testing.assert_close(mine, wanted)


def test_parameters_that_are_added_later_are_exchanged_too():
    def work(session):
        net = reference.make_net()
        store = session.store("dist_local", options(every=2, fragments=2))
        trainer = bireme.Trainer(net, torch.optim.SGD(net[0].parameters(), lr=0.1), store)
        steps_of(net, trainer, range(1, 4))
        trainer.add_param_group({"params": list(net[2].parameters())})
        steps_of(net, trainer, range(4, 10))
        trainer.sync_parameters()
        store.close()
        return values(net)

    one, other = run_threads(2, 1, work)
    assert all(map(torch.equal, one, other))
    assert not torch.equal(one[2], values(reference.make_net())[2])


def make(**more):
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return bireme.Trainer(net, optimizer, "dist_local", **more)


def test_a_plain_optimizers_state_begins_local_steps_anew():
    net = nn.Linear(2, 1)
    plain = torch.optim.SGD(net.parameters(), lr=0.25, momentum=0.5)
    net(torch.ones(2)).backward()
    plain.step()
    trainer = make()
    trainer.load_state_dict(plain.state_dict())
    assert trainer.param_groups[0]["lr"] == 0.25
    # And the other way round: what local steps save is also a plain optimizer's state.
    plain.load_state_dict(trainer.state_dict())
    trainer.kvstore.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda local: local["fragments"].append(local["fragments"][0]),
        lambda local: local.pop("step"),
        lambda local: local["fragments"][0].pop("anchors"),
        lambda local: local["fragments"][0]["anchors"].pop(),
        lambda local: local["fragments"][0].update(due=3),
        lambda local: local["fragments"][0].update(names=["a", "b"]),
    ],
)
def test_a_state_of_something_else_is_refused_and_nothing_changes(spoil):
    trainer = make()
    state = copy.deepcopy(trainer.state_dict())
    spoil(state["local"])
    state["param_groups"][0]["lr"] = 77.0
    with pytest.raises(ConfigError, match=r"local steps|fragments"):
        trainer.load_state_dict(state)
    assert trainer.param_groups[0]["lr"] == 0.1
    trainer.kvstore.close()


def test_what_local_steps_cannot_do_is_said():
    with pytest.raises(ConfigError, match="leave update_on_kvstore out"):
        make(update_on_kvstore=True)
    with pytest.raises(ConfigError, match=r"let LocalSteps\(fragments"):
        make(overlap=True)
    with pytest.raises(ConfigError, match=r"local must be a bireme\.LocalSteps"):
        make(local={"every": 3})
    with pytest.raises(ConfigError, match="takes only local, got staleness"):
        make(staleness=3)
    with pytest.raises(ConfigError, match="takes no options, got local"):
        bireme.kvstore.create("dist_sync", local=bireme.LocalSteps())
    first = make()
    with pytest.raises(ConfigError, match="a store of their own"):
        bireme.Trainer(nn.Linear(2, 1), "sgd", first.kvstore)
    first.kvstore.close()
    with pytest.raises(StateError):
        bireme.Trainer(nn.Linear(2, 1), "sgd", first.kvstore)


def test_the_other_ways_to_step():
    net = nn.Linear(2, 1)
    local = bireme.LocalSteps(every=2)
    trainer = bireme.Trainer(net, torch.optim.LBFGS(net.parameters()), "dist_local", local=local)

    def closure():
        trainer.zero_grad()
        loss = (net(torch.ones(2)) - 3).square().sum()
        loss.backward()
        return loss

    first = trainer.step(closure)
    assert trainer.step(closure) < first
    trainer.kvstore.close()
    pair = [nn.Linear(2, 1), nn.Linear(2, 1)]
    trainer = bireme.Trainer(pair, "sgd", "dist_local", local=local, optimizer_params={"lr": 1.0})
    for _ in range(3):
        for net in pair:
            net(torch.ones(2)).sum().backward()
        trainer.allreduce_grads(num_samples=[1, 3])
        trainer.update()
        trainer.zero_grad()
    assert torch.equal(pair[0].weight, pair[1].weight)
    trainer.kvstore.close()


def test_sync_parameters_of_other_stores_does_nothing():
    net = nn.Linear(2, 1)
    trainer = bireme.Trainer(net, torch.optim.SGD(net.parameters(), lr=1.0))
    before = values(net)
    trainer.sync_parameters()
    assert all(map(torch.equal, before, values(net)))


def test_a_synchronisation_without_news_moves_nothing():
    net = nn.Linear(2, 1)
    steps = bireme.LocalSteps(every=2, outer="nesterov")
    trainer = bireme.Trainer(net, "sgd", "dist_local", optimizer_params={"lr": 0.1}, local=steps)
    for _ in range(4):
        net(torch.ones(2)).sum().backward()
        trainer.step()
    before = values(net)
    trainer.sync_parameters()
    assert all(map(torch.equal, before, values(net)))
    trainer.kvstore.close()


def test_a_module_trains_saves_and_goes_on(tmp_path):
    data = [reference.batch(3, number, torch.float32) for number in range(5)]
    steps = bireme.LocalSteps(every=3, outer="nesterov", fragments=2, delay=1)

    def fit(module, num_epoch):
        with bireme.kvstore.create("dist_local", local=steps) as store:
            module.fit(
                data,
                eval_metric=None,
                num_epoch=num_epoch,
                kvstore=store,
                optimizer="adam",
                optimizer_params={"lr": 0.01},
                epoch_end_callback=lambda end: end.epoch == 0 and module.save_checkpoint(path, 1),
            )

    path = str(tmp_path / "net")
    module = bireme.Module(reference.make_net(torch.float32), nn.functional.mse_loss)
    fit(module, 1)
    module = bireme.Module(reference.make_net(torch.float32), nn.functional.mse_loss)
    fit(module, 2)
    again = bireme.Module.load(
        path, 1, reference.make_net(torch.float32), loss=nn.functional.mse_loss
    )
    fit(again, 2)
    for one, other in zip(values(module.net), values(again.net), strict=True):
        torch.testing.assert_close(one, other)
