"""What is refused at submission, before anything has changed."""

import pytest
import torch

from bireme.collective import checks
from bireme.errors import ConfigError
from bireme.types import ReduceOp


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ([1.0], "torch.Tensor, got list"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.ones(2, dtype=torch.float8_e4m3fn), "float8_e4m3fn is not supported"),
        (torch.ones(2, 3).t(), "contiguous"),
    ],
    ids=["list", "sparse", "float8", "transposed"],
)
def test_refuses_what_is_no_dense_tensor(tensor, words):
    with pytest.raises(ConfigError, match=words):
        checks.check_tensor(tensor, "a")


@pytest.mark.parametrize("dtype", sorted(checks.DTYPES, key=str), ids=str)
def test_takes_every_dtype_it_names(dtype):
    checks.check_tensor(torch.zeros(2, dtype=dtype), "a")


@pytest.mark.parametrize(
    ("tensors", "names", "words"),
    [
        ([], [], "empty"),
        (torch.ones(2), ["a"], "wrap"),
        ([torch.ones(2)], "a", "wrap"),
        ([torch.ones(2)], ["a", "b"], "1 tensors and 2 names"),
        ([torch.ones(2)] * 2, ["a", "a"], "twice"),
        ([torch.ones(2)], [""], "not empty"),
        ([torch.ones(2)], [3], "not empty, got 3"),
    ],
)
def test_refuses_names_that_do_not_go_with_the_tensors(tensors, names, words):
    with pytest.raises(ConfigError, match=words):
        checks.check_names(tensors, names)


@pytest.mark.parametrize(
    ("dtype", "op", "scales", "words"),
    [
        (torch.bool, ReduceOp.AVERAGE, (1.0, 1.0), "bool"),
        (torch.bool, ReduceOp.SUM, (2.0, 1.0), "bool"),
        (torch.complex64, ReduceOp.MAX, (1.0, 1.0), "complex"),
        (torch.int32, ReduceOp.ADASUM, (1.0, 1.0), "floating"),
        (torch.float32, ReduceOp.SUM, (float("nan"), 1.0), "finite"),
        (torch.float32, ReduceOp.SUM, (1.0, "2"), "finite"),
    ],
)
def test_refuses_reductions_without_a_meaning(dtype, op, scales, words):
    with pytest.raises(ConfigError, match=words):
        checks.check_reduction(dtype, op, scales)


def test_refuses_outputs_of_another_form():
    tensor = torch.ones(2)
    checks.check_outs([tensor], None)
    checks.check_outs([tensor], [tensor])
    for out in (torch.ones(3), torch.ones(2, dtype=torch.int32), torch.ones(4)[::2]):
        with pytest.raises(ConfigError):
            checks.check_outs([tensor], [out])
    with pytest.raises(ConfigError, match="1 tensors and 0 outputs"):
        checks.check_outs([tensor], [])


def test_roots_and_sets():
    checks.check_root(2, (1, 2))
    with pytest.raises(ConfigError, match="root_rank 0"):
        checks.check_root(0, (1, 2))
    assert checks.check_set_ranks([2, 0], 3) == (0, 2)
    for ranks in ([], [0, 0], [3], [-1], [True]):
        with pytest.raises(ConfigError):
            checks.check_set_ranks(ranks, 3)


def test_splits_are_dealt_evenly_unless_given():
    tensor = torch.ones(6, 2)
    assert checks.splits_of(tensor, None, 3, "a") == (2, 2, 2)
    assert checks.splits_of(tensor, torch.tensor([1, 0, 4], dtype=torch.int32), 3, "a") == (1, 0, 4)


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        (None, "must be given"),
        (torch.tensor([3, 3]), "int32"),
        ([3, 3], "int32"),
        (torch.tensor([6], dtype=torch.int32), "one entry"),
        (torch.tensor([4, 4], dtype=torch.int32), "do not fit"),
        (torch.tensor([-1, 4], dtype=torch.int32), "do not fit"),
    ],
)
def test_refuses_splits_that_do_not_fit(splits, words):
    with pytest.raises(ConfigError, match=words):
        checks.splits_of(torch.ones(7), splits, 2, "a")


@pytest.mark.parametrize(
    "tensor", [torch._neg_view(torch.ones(2)), torch.tensor([1j]).conj()], ids=["neg", "conj"]
)
def test_memory_that_does_not_hold_the_elements_is_refused(tensor):
    with pytest.raises(ConfigError, match=r"a: .* negated or conjugated; call \.resolve_neg"):
        checks.check_tensor(tensor, "a")


def test_a_name_that_is_no_text_is_refused():
    with pytest.raises(ConfigError, match="is not valid text"):
        checks.check_names([torch.ones(1)], ["\ud800"])
