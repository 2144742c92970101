import pytest
import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore import OptimizerSpec
from bireme.update.layout import Layout
from bireme.update.rule import Update
from bireme.update.runner import OptimizerRunner

DENSE = Layout.of("w", torch.zeros(2, 2))


def step(runner: OptimizerRunner, stored: torch.Tensor, key="w") -> torch.Tensor:
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
        runner.check("w", Layout.of("w", stored), row_sparse=False)


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
