import pytest
import torch
from tests.node.test_cells import total
from tests.node.test_updates import body, make_cell

from bireme.errors import ConfigError
from bireme.node.partials import RowsPartial
from bireme.node.reads import Reads, compensation_of
from bireme.node.updates import StoreUpdater

START = [1.0, 2.0, 3.0, 4.0]


def moved_cell(dtype=torch.float32):
    """A cell that held 1 to 4 when rank 0 read it, and has moved since."""
    cell, reads = make_cell(dtype=dtype), Reads()
    cell.fill(torch.tensor(START, dtype=dtype))
    cell.parameter()
    reads.keep(cell, 0)
    cell.parameter().add_(torch.tensor([0.5, 0.0, -1.0, 2.0]).view_as(cell.parameter()))
    cell.changed()
    cell.read()
    return cell, reads


def test_the_term_is_that_of_the_paper():
    cell, reads = moved_cell()
    gradient = total(cell, [1.0, 5.0, 2.0, -3.0])
    reads.compensate(cell, 0, gradient, 0.5)
    # g + 0.5 g g (now - then)
    assert gradient.tensor.tolist() == [1.25, 5.0, 0.0, 6.0]


def test_rows_are_compensated_by_their_own_moves():
    cell, reads = moved_cell()
    rows = RowsPartial(torch.tensor([1]), torch.tensor([[2.0, -3.0]]), cell.shape)
    reads.compensate(cell, 0, rows, 0.5)
    assert rows.rows.tolist() == [[0.0, 6.0]]


def test_who_has_read_nothing_or_the_newest_gets_the_gradient_as_it_is():
    cell, reads = moved_cell()
    for rank in (1, 0):
        if rank == 0:
            reads.keep(cell, 0)
        gradient = total(cell, [1.0, 5.0, 2.0, -3.0])
        reads.compensate(cell, rank, gradient, 0.5)
        assert gradient.tensor.tolist() == [1.0, 5.0, 2.0, -3.0]


def test_half_types_are_compensated_in_float32():
    cell, reads = moved_cell(torch.float16)
    gradient = total(cell, [1.0, 5.0, 2.0, -3.0])
    assert gradient.tensor.dtype is torch.float32
    reads.compensate(cell, 0, gradient, 0.5)
    assert gradient.tensor.tolist() == [1.25, 5.0, 0.0, 6.0]


def test_one_value_is_kept_for_each_rank_and_no_more():
    cell, reads = moved_cell()
    for rank in (0, 1, 0, 1, 1):
        reads.keep(cell, rank)
    held = cell.read()
    assert held._count == 3


def test_the_strength_travels_with_the_optimizer_and_changes_with_it():
    updater = StoreUpdater({**body("sgd", lr=1.0), "delay_compensation": 0.04})
    assert updater.compensation == 0.04
    assert updater.replace(body("sgd", lr=1.0))
    assert updater.compensation == 0.0


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "much"])
def test_a_strength_that_is_none(value):
    with pytest.raises(ConfigError, match="finite number >= 0"):
        compensation_of({"delay_compensation": value})
