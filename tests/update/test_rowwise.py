import pytest
import torch

from bireme.errors import UnsupportedError
from bireme.update import OptimizerSpec
from bireme.update.rowwise import RowOptimizer, RowState

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.9, "centered": True}),
    ("Adadelta", {"lr": 0.5}),
    ("Adamax", {"lr": 0.1}),
    ("NAdam", {"lr": 0.1}),
    ("RAdam", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1}),
    ("Rprop", {"lr": 0.1}),
    ("SparseAdam", {"lr": 0.1}),
]
ROWS, DIM, STEPS = 12, 5, 15


def touched(step):
    """Some rows: half of them often, so that their step counts differ."""
    generator = torch.Generator().manual_seed(step)
    return (torch.rand(ROWS, generator=generator) < torch.linspace(0.2, 1, ROWS)).nonzero()[:, 0]


@pytest.mark.parametrize(("name", "params"), CASES)
def test_each_row_is_updated_as_a_parameter_of_its_own(name, params):
    spec = OptimizerSpec(name, params)
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(ROWS, DIM, dtype=torch.float64, generator=generator)
    alone = [table[row : row + 1].clone() for row in range(ROWS)]
    references = [spec.build([each]) for each in alone]
    optimizer = RowOptimizer(spec, DIM, torch.float64)
    tensors = {each: torch.full_like(table, 7.0) for each in optimizer.tensors}
    numbers = {each: torch.full((ROWS,), 7.0).double() for each in optimizer.numbers}
    seen = torch.zeros(ROWS, dtype=torch.bool)
    for step in range(STEPS):
        which = touched(step)
        grads = torch.randn(len(which), DIM, dtype=torch.float64, generator=generator)
        for row, grad in zip(which.tolist(), grads, strict=True):
            alone[row].grad = grad[None].clone()
            if name == "SparseAdam":
                alone[row].grad = alone[row].grad.to_sparse(1)
            references[row].step()
        part = RowState(
            {each: value[which] for each, value in tensors.items()},
            {each: value[which] for each, value in numbers.items()},
            ~seen[which],
        )
        rows = table[which]
        optimizer.step(rows, grads, part)
        table[which] = rows
        for each, value in part.tensors.items():
            tensors[each][which] = value
        for each, value in part.numbers.items():
            numbers[each][which] = value
        seen[which] = True
    torch.testing.assert_close(table, torch.cat(alone), rtol=1e-9, atol=1e-9)
    counts = numbers.get("step")
    if counts is not None:
        expected = torch.stack([touched(step).bincount(minlength=ROWS) for step in range(STEPS)])
        assert torch.equal(counts[seen], expected.sum(0).double()[seen])


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_optimizers_over_whole_matrices_are_refused(name):
    with pytest.raises(UnsupportedError, match="whole matrix"):
        RowOptimizer(OptimizerSpec(name), DIM, torch.float32)


def test_gradients_are_rescaled():
    spec = OptimizerSpec("sgd", {"lr": 1.0}, rescale_grad=0.25)
    rows = torch.zeros(1, 2)
    state = RowState({}, {}, torch.ones(1, dtype=torch.bool))
    RowOptimizer(spec, 2, torch.float32).step(rows, torch.full((1, 2), 4.0), state)
    assert rows.tolist() == [[-1, -1]]


def test_no_rows_are_no_matter():
    optimizer = RowOptimizer(OptimizerSpec("adagrad"), 2, torch.float32)
    state = RowState(
        {"sum": torch.zeros(0, 2)},
        {"step": torch.zeros(0).double()},
        torch.zeros(0, dtype=torch.bool),
    )
    optimizer.step(torch.zeros(0, 2), torch.zeros(0, 2), state)
