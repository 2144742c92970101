import torch

from bireme.update.rowwise import RowState
from bireme.update.rowwise_adam import adam_step

ARGUMENTS = {"lr": 0.1, "eps": 0.0, "weight_decay": 0.5, "betas": (0.5, 0.5)}


def step(*, decoupled):
    zeros = torch.zeros(1, 1, dtype=torch.float64)
    state = RowState(
        {"exp_avg": zeros.clone(), "exp_avg_sq": zeros.clone()},
        {"step": torch.zeros(1, dtype=torch.float64)},
        torch.ones(1, dtype=torch.bool),
    )
    rows = torch.full((1, 1), 2.0, dtype=torch.float64)
    adam_step(ARGUMENTS, rows, torch.full_like(rows, 4.0), state, decoupled=decoupled)
    return rows.item(), state.tensors["exp_avg"].item()


def test_decoupled_decay_shrinks_the_row_and_leaves_the_gradient():
    row, average = step(decoupled=True)
    assert (round(row, 12), average) == (1.8, 2.0)


def test_other_decay_is_part_of_the_gradient():
    row, average = step(decoupled=False)
    assert (round(row, 12), average) == (1.9, 2.5)
