import pytest
import torch
from tests.horovod.doubles import echo


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))


def test_the_class_is_below_the_users_and_called_the_same(hvd, model):
    optimizer = hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.1))
    assert isinstance(optimizer, torch.optim.AdamW)
    assert type(optimizer).__name__ == "AdamW"
    assert type(optimizer).__module__ == hvd.DistributedOptimizer.__module__
    assert "lr: 0.1" in repr(optimizer)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"backward_passes_per_step": 0}, "must be > 0"),
        ({"gradient_predivide_factor": 2.0, "op": 1}, "not supported with op != Average"),
        ({"gradient_predivide_factor": -1.0}, "must be > 0, got -1.0"),
        ({"groups": 0}, "groups should be"),
        ({"named_parameters": [("a", 1)]}, "were not named"),
    ],
)
def test_faulty_arguments_are_value_errors(hvd, model, arguments, match):
    with pytest.raises(ValueError, match=match):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **arguments)


def test_before_init_it_says_what_to_do(model):
    import bireme.horovod.torch as hvd

    with pytest.raises(ValueError, match=r"use hvd.init\(\)"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))


def test_wrapping_twice_is_refused(hvd, model):
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="distributed already"):
        hvd.DistributedOptimizer(optimizer)


def test_num_groups_is_the_older_word(hvd, model):
    with pytest.warns(DeprecationWarning, match="replaced by `groups`"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), num_groups=2)


def test_state_options_and_defaults_are_kept(hvd, model):
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.3)
    model(torch.ones(1, 3)).sum().backward()
    inner.step()
    optimizer = hvd.DistributedOptimizer(inner)
    assert optimizer.defaults["weight_decay"] == 0.3
    assert optimizer.state[model[0].weight] is inner.state[model[0].weight]


class Fussy(torch.optim.SGD):
    """An optimizer whose constructor wants something else than groups."""

    def __init__(self, model, *, rate):
        super().__init__(model.parameters(), lr=rate)
        self.extra = "kept"

    def step(self, closure=None):
        self.stepped = True
        return super().step(closure)


def test_any_constructor_and_any_attribute(hvd, model):
    optimizer = hvd.DistributedOptimizer(Fussy(model, rate=0.1))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert optimizer.extra == "kept"
    assert optimizer.stepped


def test_a_class_below_the_distributed_one_does_not_recurse(hvd, model):
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    class Below(type(optimizer)):
        def step(self, closure=None):
            return super().step(closure)

    optimizer.__class__ = Below
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("which", ["inner", "distributed"])
def test_schedulers_of_either_optimizer_work_without_a_warning(hvd, model, which):
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    if which == "inner":
        scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(inner)
    if which == "distributed":
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_hooks_of_steps_run_once(hvd, model):
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append("post"))
    optimizer.load_state_dict(optimizer.state_dict())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert calls == ["post"]


def test_adasum_of_one_process_is_averaging(hvd, model, monkeypatch):
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    assert hasattr(hvd.DistributedOptimizer(inner, op=hvd.Adasum), "_allreduce_delay")
    echo(monkeypatch)
    assert not hasattr(hvd.DistributedOptimizer(inner, op=hvd.Adasum), "_allreduce_delay")
