import pytest
import torch

from bireme import compress
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.reduce import CompressedReducer, HostReducer, Sum


@pytest.fixture
def reducer():
    return CompressedReducer(HostReducer(), compress.create({"type": "2bit", "threshold": 0.5}))


def push(reducer, *values: float, key="k") -> float:
    tensors = [torch.full((3,), value) for value in values]
    out = torch.empty(3)
    reducer.check(key, tensors)
    reducer.run([Sum(key, tensors, [out])])
    assert (out == out[0]).all()
    return out[0].item()


def test_each_source_has_its_residual(reducer):
    assert push(reducer, 0.4, 0.2) == 0.0
    assert push(reducer, 0.1, 0.2) == 0.5
    assert push(reducer, 0.0, 0.1) == 0.5
    assert push(reducer, 0.0, 0.0) == 0.0


def test_each_key_has_its_residual(reducer):
    push(reducer, 0.4, key="a")
    assert push(reducer, 0.2, key="b") == 0.0
    assert push(reducer, 0.1, key="a") == 0.5


def test_forget(reducer):
    push(reducer, 0.4)
    reducer.forget()
    assert push(reducer, 0.1) == 0.0


def test_check_changes_nothing(reducer):
    for _ in range(3):
        reducer.check("k", [torch.full((3,), 0.4)])
    assert push(reducer, 0.2) == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int32], ids=str)
def test_unsupported_types(reducer, dtype):
    with pytest.raises(UnsupportedError):
        reducer.check("k", [torch.ones(3, dtype=dtype)])


def test_source_that_moved(reducer):
    push(reducer, 0.4)
    with pytest.raises(ConfigError, match=r"moved from cpu to meta.*start afresh"):
        reducer.check("k", [torch.ones(3, device="meta")])


def test_every_target_gets_the_sum(reducer):
    outs = [torch.empty(2, 2) for _ in range(3)]
    reducer.run([Sum("k", [torch.ones(2, 2).T, torch.ones(2, 2)], outs)])
    assert all((out == 1.0).all() for out in outs)
