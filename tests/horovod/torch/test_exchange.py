import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float64])
def test_broadcast_of_one(hvd, dtype):
    tensor = torch.ones(2, 3, dtype=dtype)
    result = hvd.broadcast(tensor, 0)
    assert torch.equal(result, tensor)
    assert result is not tensor
    assert hvd.broadcast_(tensor, 0, "n") is tensor
    assert torch.equal(hvd.synchronize(hvd.broadcast_async(tensor, 0)), tensor)
    assert hvd.synchronize(hvd.broadcast_async_(tensor, 0)) is tensor


@pytest.mark.parametrize("root", [1, -1, "0", None, True])
def test_a_root_that_there_is_not(hvd, root):
    with pytest.raises(ValueError, match="root_rank"):
        hvd.broadcast(torch.ones(1), root)


def test_gradients_flow_to_the_root(hvd):
    tensor = torch.ones(2, requires_grad=True)
    (hvd.broadcast(tensor, 0) * 4).sum().backward()
    assert tensor.grad.tolist() == [4.0, 4.0]


def test_alltoall_returns_a_pair_only_when_splits_are_given(hvd):
    tensor = torch.arange(4.0)
    assert torch.equal(hvd.alltoall(tensor), tensor)
    output, received = hvd.alltoall(tensor, torch.tensor([3], dtype=torch.int32))
    assert output.tolist() == [0.0, 1.0, 2.0]
    assert received.tolist() == [3]
    assert received.dtype is torch.int32
    assert len(hvd.synchronize(hvd.alltoall_async(tensor, name="n"))) == 2


@pytest.mark.parametrize(
    "splits",
    [
        torch.tensor([5], dtype=torch.int32),
        torch.tensor([-1], dtype=torch.int32),
        torch.tensor([1, 1], dtype=torch.int32),
        torch.tensor([1]),
        torch.tensor([1.0]),
        [1],
    ],
)
def test_splits_that_do_not_fit_are_value_errors_at_once(hvd, splits):
    with pytest.raises(ValueError, match="splits"):
        hvd.alltoall(torch.arange(4.0), splits)


def test_gradients_go_back_where_rows_came_from(hvd):
    tensor = torch.ones(4, requires_grad=True)
    output, _ = hvd.alltoall(tensor, torch.tensor([3], dtype=torch.int32))
    (output * 2).sum().backward()
    assert tensor.grad.tolist() == [2.0, 2.0, 2.0, 0.0]
    tensor.grad = None
    (hvd.alltoall(tensor) * 3).sum().backward()
    assert tensor.grad.tolist() == [3.0] * 4


def test_alltoall_takes_no_scalar(hvd):
    with pytest.raises((hvd.HorovodInternalError, ValueError)):
        hvd.alltoall(torch.tensor(1.0))
