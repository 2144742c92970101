import pytest
import torch


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float16,
     torch.float64, torch.complex64],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3)])
def test_of_one_process_the_tensor_itself(hvd, dtype, shape):
    tensor = torch.ones(shape, dtype=dtype)
    result = hvd.allgather(tensor)
    assert torch.equal(result, tensor)
    assert result.dtype is dtype
    assert torch.equal(hvd.synchronize(hvd.allgather_async(tensor, "n")), tensor)


def test_scalars_have_no_rows(hvd):
    for operation in (hvd.allgather, hvd.reducescatter):
        with pytest.raises(hvd.HorovodInternalError, match="scalar"):
            operation(torch.tensor(1.0))


def test_groups(hvd):
    tensors = [torch.ones(2, 2), torch.zeros(3)]
    for result in (hvd.grouped_allgather(tensors), hvd.grouped_reducescatter(tensors)):
        assert all(torch.equal(a, b) for a, b in zip(result, tensors, strict=True))
    assert isinstance(hvd.grouped_allgather(tensors, name="g"), tuple)
    assert isinstance(hvd.grouped_reducescatter(tensors, name="g"), list)
    number = hvd.grouped_allgather_async(tensors)
    assert len(hvd.synchronize(number)) == 2
    number = hvd.grouped_reducescatter_async(tensors, op=hvd.Sum)
    assert len(hvd.synchronize(number)) == 2


def test_gradients_of_gathering(hvd):
    tensor = torch.ones(2, 3, requires_grad=True)
    (hvd.allgather(tensor) * 3).sum().backward()
    assert torch.equal(tensor.grad, torch.full((2, 3), 3.0))
    parts = [torch.ones(2, requires_grad=True), torch.ones(1, 2, requires_grad=True)]
    first, second = hvd.grouped_allgather(parts)
    (first.sum() + 2 * second.sum()).backward()
    assert parts[0].grad.tolist() == [1.0, 1.0]
    assert parts[1].grad.tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize("op", ["Sum", "Average"])
def test_gradients_of_scattering_and_the_incoming_gradient_stays_as_it_is(hvd, op):
    tensor = torch.ones(4, requires_grad=True)
    result = hvd.reducescatter(tensor, op=getattr(hvd, op), prescale_factor=2.0)
    incoming = torch.full((4,), 5.0)
    result.backward(incoming)
    assert incoming.tolist() == [5.0] * 4
    assert tensor.grad.tolist() == [10.0] * 4
    parts = [torch.ones(2, requires_grad=True)]
    (scattered,) = hvd.grouped_reducescatter(parts, op=getattr(hvd, op), postscale_factor=3.0)
    scattered.sum().backward()
    assert parts[0].grad.tolist() == [3.0, 3.0]


def test_scattering_takes_sums_and_means_only(hvd):
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(hvd.HorovodInternalError, match="takes Average and Sum"):
            hvd.reducescatter(torch.ones(2, dtype=torch.int32), op=op)


def test_the_order_of_arguments_is_horovods(hvd):
    tensor = torch.ones(2)
    result = hvd.reducescatter(
        tensor, "n", hvd.Compression.fp16, hvd.Sum, hvd.global_process_set, 2.0, 3.0
    )
    assert result.tolist() == [6.0, 6.0]
    number = hvd.reducescatter_async(tensor, "n", hvd.Sum, hvd.global_process_set, 2.0)
    assert hvd.synchronize(number).tolist() == [2.0, 2.0]
