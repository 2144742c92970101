import pytest
import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore import OptimizerSpec
from bireme.update.layout import Layout
from bireme.update.rule import Update
from bireme.update.runner import OptimizerRunner

DENSE = Layout.of("w", torch.zeros(2, 2))


def step(runner: OptimizerRunner, stored: torch.Tensor, key="w") -> torch.Tensor:
    runner.refresh()
    runner.check(key, Layout.of(key, stored), row_sparse=False)
    runner.apply([Update(key, torch.ones_like(stored), stored)])
    return stored


def test_state_belongs_to_the_key_and_moves_to_a_new_tensor():
    runner = OptimizerRunner(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
    first = step(runner, torch.zeros(2))
    assert first.tolist() == [-1, -1]
    assert step(runner, torch.zeros(2)).tolist() == [-1.5, -1.5]
    assert step(runner, torch.zeros(2), "other").tolist() == [-1, -1]
    assert first.grad is None


def test_rescale_works_on_rows_too():
    runner = OptimizerRunner(OptimizerSpec("sgd", {"lr": 1.0}, rescale_grad=0.25))
    stored = torch.zeros(3, 2)
    rows = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (3, 2), check_invariants=True)
    runner.apply([Update("w", rows.coalesce(), stored)])
    assert stored.tolist() == [[0, 0], [-0.25, -0.25], [0, 0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_floating_types(dtype):
    runner = OptimizerRunner(OptimizerSpec("adam", {"lr": 0.5}))
    assert step(runner, torch.zeros(2, dtype=dtype)).tolist() == pytest.approx([-0.5] * 2, rel=1e-2)


def test_refusals_come_before_the_step():
    adam = OptimizerRunner(OptimizerSpec("adam"))
    with pytest.raises(UnsupportedError, match=r"Adam.*row-sparse gradient.*push dense"):
        adam.check("w", DENSE, row_sparse=True)
    with pytest.raises(UnsupportedError, match=r"SparseAdam.*dense gradient"):
        OptimizerRunner(OptimizerSpec("sparseadam")).check("w", DENSE, row_sparse=False)
    with pytest.raises(ConfigError, match=r"Muon.*'w'"):
        OptimizerRunner(OptimizerSpec("muon")).check("w", Layout.of("w", torch.zeros(2)), False)
    with pytest.raises(ConfigError, match="int8"):
        adam.check("w", Layout.of("w", torch.zeros(2, dtype=torch.int8)), row_sparse=False)


def test_take_over_keeps_the_state_of_the_same_class():
    runner = OptimizerRunner(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
    stored = step(runner, torch.zeros(1))
    assert runner.take_over(OptimizerRunner(OptimizerSpec("sgd", {"lr": 2.0})))
    assert step(runner, stored).item() == -3.0
    assert not runner.take_over(OptimizerRunner(OptimizerSpec("adam")))
    assert runner.spec.name == "SGD"


def test_take_over_refuses_what_the_state_lacks():
    runner = OptimizerRunner(OptimizerSpec("adam"))
    amsgrad = OptimizerRunner(OptimizerSpec("adam", {"amsgrad": True}))
    step(runner, torch.zeros(1))
    with pytest.raises(UnsupportedError, match=r"Adam.*keep its state"):
        runner.take_over(amsgrad)
    assert runner.spec.arguments("w")["amsgrad"] is False
    assert OptimizerRunner(OptimizerSpec("adam")).take_over(amsgrad)


def test_live_optimizer_is_read_and_its_refusals_too():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    runner = OptimizerRunner(optimizer)
    stored = step(runner, torch.zeros(1))
    optimizer.param_groups[0]["lr"] = 0.0
    before = stored.item()
    assert step(runner, stored).item() == before
    optimizer.param_groups[0]["amsgrad"] = True
    with pytest.raises(UnsupportedError, match="keep its state"):
        runner.refresh()


def test_states_round_trip():
    spec = OptimizerSpec("adam", {"lr": 0.1})
    first, second = OptimizerRunner(spec), OptimizerRunner(spec)
    stored = step(first, torch.zeros(2))
    copy = stored.clone()
    states = {key: {n: v.clone() for n, v in s.items()} for key, s in first.states().items()}
    second.load_states(states, {"w": copy})
    assert torch.equal(step(first, stored), step(second, copy))
    second.load_states({}, {})
    assert second.states() == {}


@pytest.mark.parametrize("thing", [None, "sgd", torch.optim.SGD, 0.1])
def test_only_optimizers(thing):
    with pytest.raises(ConfigError, match="OptimizerSpec"):
        OptimizerRunner(thing)


def test_keys_with_equal_arguments_share_a_step(monkeypatch):
    steps = []
    step_of_sgd = torch.optim.SGD.step

    def step(optimizer, closure=None):
        steps.append([len(group["params"]) for group in optimizer.param_groups])
        return step_of_sgd(optimizer, closure)

    monkeypatch.setattr(torch.optim.SGD, "step", step)
    spec = OptimizerSpec(
        "sgd", {"lr": 1.0, "momentum": 0.5}, lr_mult={1: 0.5, 3: 0.5}, groups={2: {"lr": 1}}
    )
    runner = OptimizerRunner(spec)
    values = [torch.zeros(2) for _ in range(4)]
    for _ in range(2):
        runner.apply([Update(key, torch.ones(2), value) for key, value in enumerate(values)])
    assert steps == [[2, 2]] * 2
    assert [value[0].item() for value in values] == [-2.5, -1.25, -2.5, -1.25]


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "rmsprop", "muon"])
def test_many_keys_equal_keys_alone(name):
    generator = torch.Generator().manual_seed(3)
    values = [torch.randn(3, 4, generator=generator) for _ in range(5)]
    alone = [value.clone() for value in values]
    together = OptimizerRunner(OptimizerSpec(name, {"lr": 0.1}))
    runners = [OptimizerRunner(OptimizerSpec(name, {"lr": 0.1})) for _ in values]
    for number in range(4):
        grads = [torch.randn(3, 4, generator=generator) for _ in values]
        # Not every key is pushed every time, and the order changes.
        keys = [key for key in (4, 2, 0, 1, 3) if key != number]
        together.apply([Update(key, grads[key].clone(), values[key]) for key in keys])
        for key in keys:
            runners[key].apply([Update(key, grads[key].clone(), alone[key])])
    assert all(torch.equal(*pair) for pair in zip(values, alone, strict=True))
    assert together.states().keys() == set(range(5))


def test_row_sparse_and_dense_gradients_share_a_push():
    runner = OptimizerRunner(OptimizerSpec("sgd", {"lr": 1.0}))
    dense, table = torch.zeros(3, 2), torch.zeros(3, 2)
    rows = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (3, 2), check_invariants=True)
    runner.apply([Update("d", torch.ones(3, 2), dense), Update("t", rows.coalesce(), table)])
    assert dense.tolist() == [[-1, -1]] * 3
    assert table.tolist() == [[0, 0], [-1, -1], [0, 0]]


def test_a_key_whose_tensor_changes_leaves_nothing_behind():
    runner = OptimizerRunner(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
    for _ in range(5):
        step(runner, torch.zeros(2))
    assert len(runner._optimizer.state) == 1


def test_states_that_do_not_fit_change_nothing():
    runner = OptimizerRunner(OptimizerSpec("adam"))
    step(runner, torch.zeros(2))
    before = runner.states()
    with pytest.raises(KeyError):
        runner.load_states({"w": {}, "x": {}}, {"w": torch.zeros(2)})
    assert runner.states().keys() == before.keys()
    assert runner.states()["w"]["step"] == 1
