import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from bireme import OptimizerSpec, kvstore
from bireme.errors import ConfigError, DataError, StateError
from bireme.train.resuming import Request, TrainingKeeper


def nets(num=1):
    first = nn.Linear(2, 1)
    return [first] + [nn.Linear(2, 1) for _ in range(num - 1)]


def step(keeper, models):
    keeper.trainer.zero_grad()
    for each in models:
        each(torch.ones(3, 2)).sum().backward()
    keeper.trainer.step()


def trained(request=None, num_steps=2):
    keeper, models = TrainingKeeper(), nets()
    keeper.prepare(models, request or Request(optimizer="adam", optimizer_params={"lr": 0.1}))
    keeper.resume(None)
    for _ in range(num_steps):
        step(keeper, models)
    return keeper


def test_there_is_no_trainer_before_it_is_made():
    keeper = TrainingKeeper()
    assert not keeper.has_trainer
    assert keeper.state() is None
    with pytest.raises(StateError, match="call fit or init_optimizer first"):
        _ = keeper.trainer


def test_equal_requests_and_none_keep_the_trainer():
    keeper, models = TrainingKeeper(), nets()
    keeper.prepare(models, Request(optimizer_params={"lr": 0.5}))
    trainer = keeper.trainer
    assert trainer.learning_rate == 0.5
    for same in (Request(), Request(optimizer="sgd", optimizer_params={"lr": 0.5})):
        keeper.prepare(models, same)
        assert keeper.trainer is trainer
    for other in (
        Request(optimizer_params={"lr": 0.6}),
        Request(optimizer="adam"),
        Request(kvstore="local"),
    ):
        keeper.prepare(models, other)
        assert keeper.trainer is not trainer
        trainer = keeper.trainer


def test_a_store_that_the_trainer_made_is_closed_with_it():
    keeper, models = TrainingKeeper(), nets(2)
    keeper.prepare(models, Request(kvstore="local"))
    store = keeper.trainer.kvstore
    own = kvstore.create("device")
    keeper.prepare(models, Request(kvstore=own))
    with pytest.raises(StateError):
        store.pull("any")
    keeper.prepare(models, Request(kvstore="local"))
    own.init("still", torch.ones(1))


def test_the_default_is_sgd():
    keeper = TrainingKeeper()
    keeper.prepare(nets(), Request())
    assert type(keeper.trainer.optimizer) is torch.optim.SGD
    assert keeper.trainer.learning_rate == 0.01


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(optimizer="nothing"), "no optimizer 'nothing'"),
        (Request(optimizer=torch.optim.SGD), "is the class SGD; pass its name"),
        (Request(optimizer=OptimizerSpec("sgd"), optimizer_params={"lr": 1}), "name only"),
        (Request(optimizer_params={"rate": 1}), "no argument 'rate'"),
        (Request(kvstore="nothing"), "nothing"),
    ],
)
def test_wrong_requests_leave_what_is_in_use(request_, message):
    keeper, models = TrainingKeeper(), nets()
    keeper.prepare(models, Request())
    trainer = keeper.trainer
    with pytest.raises(ConfigError, match=message):
        keeper.prepare(models, request_)
    assert keeper.trainer is trainer


def test_state_goes_on_where_it_was():
    saved = trained().state()
    keeper = TrainingKeeper(3, saved)
    assert keeper.begin_epoch == 3
    assert keeper.state() is saved
    keeper.prepare(nets(), Request())
    assert type(keeper.trainer.optimizer) is torch.optim.Adam
    keeper.resume(None)
    assert keeper.begin_epoch == 0
    assert keeper.trainer.state_dict()["state"][0]["step"] == 2


def test_another_optimizer_than_the_checkpoints_is_refused():
    saved = trained().state()
    for other in (
        Request(optimizer="sgd"),
        Request(optimizer="adam", optimizer_params={"lr": 0.2}),
        Request(optimizer="adam", optimizer_params={"lr": 0.1, "betas": (0.5, 0.9)}),
    ):
        keeper = TrainingKeeper(1, saved)
        with pytest.raises(ConfigError, match=r"trained with Adam .* load_optimizer_states=False"):
            keeper.prepare(nets(), other)
        assert not keeper.has_trainer
    same = Request(optimizer="Adam", optimizer_params={"learning_rate": 0.1})
    TrainingKeeper(1, saved).prepare(nets(), same)
    # Arguments without a name are meant for the optimizer that there was.
    TrainingKeeper(1, saved).prepare(nets(), Request(optimizer_params={"lr": 0.1}))


def test_an_optimizer_object_must_be_given_again():
    models = nets()
    keeper = TrainingKeeper()
    keeper.prepare(models, Request(optimizer=torch.optim.SGD(models[0].parameters(), lr=0.3)))
    saved = keeper.state()
    with pytest.raises(ConfigError, match="optimizer object of class SGD; pass one again"):
        TrainingKeeper(1, saved).prepare(nets(), Request())
    again = nets()
    optimizer = torch.optim.SGD(again[0].parameters(), lr=0.3)
    TrainingKeeper(1, saved).prepare(again, Request(optimizer=optimizer))


def scheduler(trainer):
    return lr_scheduler.MultiStepLR(trainer, [1, 3], gamma=0.1)


def test_schedulers_go_on_where_they_were():
    keeper, models = TrainingKeeper(), nets()
    keeper.prepare(models, Request(optimizer_params={"lr": 1.0}))
    found = keeper.resume(scheduler)
    step(keeper, models)
    found.step()
    assert keeper.trainer.learning_rate == pytest.approx(0.1)
    saved = keeper.state()

    again = TrainingKeeper(1, saved)
    others = nets()
    again.prepare(others, Request())
    found = again.resume(scheduler)
    assert again.trainer.learning_rate == pytest.approx(0.1)
    step(again, others)
    found.step()
    assert again.trainer.learning_rate == pytest.approx(0.1)
    found.step()
    assert again.trainer.learning_rate == pytest.approx(0.01)

    for wrong in (None, lambda trainer: lr_scheduler.StepLR(trainer, 1)):
        other = TrainingKeeper(1, saved)
        other.prepare(nets(), Request())
        with pytest.raises(ConfigError, match="trained with lr_scheduler MultiStepLR, not"):
            other.resume(wrong)


def test_what_is_no_scheduler_is_refused():
    keeper = TrainingKeeper()
    keeper.prepare(nets(), Request())
    stranger = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1)
    with pytest.raises(ConfigError, match="another optimizer"):
        keeper.resume(scheduler(stranger))
    with pytest.raises(ConfigError, match="lr_scheduler must be"):
        keeper.resume(lambda trainer: 3)
    with pytest.raises(ConfigError, match="lr_scheduler must be"):
        keeper.resume(5)


def test_random_numbers_go_on():
    keeper = trained()
    saved = keeper.state()
    expected = torch.rand(3)
    torch.rand(7)
    again = TrainingKeeper(1, saved)
    again.prepare(nets(), Request())
    again.resume(None)
    assert torch.equal(torch.rand(3), expected)


def test_garbled_state_is_refused():
    with pytest.raises(DataError, match="lacks an entry"):
        TrainingKeeper(1, {"optimizer": {}})
    saved = trained().state()
    saved["trainer"]["param_groups"] = []
    keeper = TrainingKeeper(1, saved)
    with pytest.raises(DataError, match="does not fit"):
        keeper.prepare(nets(), Request())
    assert not keeper.has_trainer
