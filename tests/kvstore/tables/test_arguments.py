import pytest
import torch

from bireme.errors import ConfigError
from bireme.kvstore.tables.arguments import check_gradients, check_ids
from bireme.kvstore.tables.options import TableOptions

OPTIONS = TableOptions("t", 2, num_rows=10, dtype=torch.float64)


def test_ids_up_to_the_last_row_are_taken():
    check_ids(torch.tensor([0, 9, 9]), OPTIONS)
    check_ids(torch.empty(0, dtype=torch.int64), OPTIONS)
    check_ids(torch.tensor([-(2**63), 2**63 - 1]), TableOptions("t", 2))


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (torch.tensor([1], dtype=torch.int32), "int64"),
        (torch.tensor([10]), "rows 0 to 9"),
        (torch.tensor([-1]), "rows 0 to 9"),
        (torch.tensor([[1]]), "one-dimensional"),
        (torch.tensor(1), "one-dimensional"),
        (torch.empty(1, dtype=torch.int64, device="meta"), "on the CPU"),
    ],
)
def test_what_are_no_ids_is_refused(ids, text):
    with pytest.raises(ConfigError, match=text):
        check_ids(ids, OPTIONS)


def test_gradients_of_the_tables_form_are_taken():
    check_gradients(3, torch.ones(3, 2).double(), 0.0, OPTIONS)
    check_gradients(0, torch.ones(0, 2).double(), 1.0, OPTIONS)


@pytest.mark.parametrize(
    ("grads", "weight", "text"),
    [
        (torch.ones(1, 2), 1.0, "float32"),
        (torch.ones(1, 3).double(), 1.0, "shape"),
        (torch.ones(2, 2).double(), 1.0, "gradients of 1 rows"),
        (torch.ones(1, 2).double(), -1.0, "weight"),
        (torch.ones(1, 2).double(), float("nan"), "weight"),
        (torch.ones(1, 2).double(), float("inf"), "weight"),
    ],
)
def test_what_cannot_be_pushed_is_refused(grads, weight, text):
    with pytest.raises(ConfigError, match=text):
        check_gradients(1, grads, weight, OPTIONS)
