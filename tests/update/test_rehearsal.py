import pytest
import torch

from bireme.errors import UnsupportedError
from bireme.kvstore import OptimizerSpec
from bireme.update.rehearsal import Form
from bireme.update.rule import Update

ROWS = torch.eye(3).to_sparse(1)


def rehearse(form: Form, name: str, then=None, **params) -> None:
    spec = OptimizerSpec(name, params)
    arguments = spec.arguments("w")
    form.rehearse(spec, "w", arguments, arguments | (then or {}))


def test_the_form_of_an_update():
    assert Form.of(Update("w", ROWS, torch.zeros(3, 3))) == Form(torch.float32, 2, False, True)
    assert Form.of(Update("w", ROWS, ROWS.double())) == Form(torch.float64, 2, True, True)


@pytest.mark.parametrize("num_dims", [0, 1, 4])
def test_what_torch_accepts(num_dims):
    rehearse(Form(torch.bfloat16, num_dims, False, False), "adamw")
    rehearse(Form(torch.float32, max(num_dims, 1), False, True), "sparseadam")


def test_what_torch_refuses():
    with pytest.raises(UnsupportedError, match="push dense"):
        rehearse(Form(torch.float32, 2, False, True), "adam")
    with pytest.raises(UnsupportedError, match="push row-sparse"):
        rehearse(Form(torch.float32, 2, False, False), "sparseadam")


def test_changes_that_need_other_state():
    form = Form(torch.float32, 1, False, False)
    rehearse(form, "adam", {"weight_decay": 0.5})
    with pytest.raises(UnsupportedError, match="keep its state"):
        rehearse(form, "adam", {"amsgrad": True})
