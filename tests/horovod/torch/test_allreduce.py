import pytest
import torch

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", FLOATS + INTS + COMPLEX)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 1, 2)])
def test_of_one_process_the_tensor_itself(hvd, dtype, shape):
    tensor = torch.ones(shape, dtype=dtype) * 3
    for op in (hvd.Average, hvd.Sum):
        result = hvd.allreduce(tensor, op=op)
        assert torch.equal(result, tensor)
        assert result.dtype is dtype
        assert result is not tensor


def test_bools_may_be_summed(hvd):
    tensor = torch.tensor([True, False])
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), tensor)
    with pytest.raises(ValueError, match="bool"):
        hvd.allreduce(tensor, op=hvd.Average)


@pytest.mark.parametrize("dtype", FLOATS)
def test_factors_before_and_after(hvd, dtype):
    tensor = torch.tensor([1.0, -2.0], dtype=dtype)
    result = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert torch.equal(result, tensor * 1.5)


@pytest.mark.parametrize("dtype", INTS[1:])
def test_integers_are_scaled_in_float64_and_truncated(hvd, dtype):
    tensor = torch.tensor([5, -5], dtype=dtype)
    assert hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5).tolist() == [2, -2]


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_the_other_operations(hvd, op):
    tensor = torch.tensor([2.0, -3.0])
    assert torch.equal(hvd.allreduce(tensor, op=getattr(hvd, op)), tensor)


def test_in_place_returns_the_same_object(hvd):
    tensor = torch.tensor([1.0, 2.0])
    assert hvd.allreduce_(tensor, op=hvd.Sum, postscale_factor=2.0) is tensor
    assert tensor.tolist() == [2.0, 4.0]
    number = hvd.allreduce_async_(tensor, None, "name", hvd.Sum, 2.0)
    assert hvd.synchronize(number) is tensor
    assert tensor.tolist() == [4.0, 8.0]


def test_a_parameter_may_be_reduced_in_place(hvd):
    parameter = torch.nn.Parameter(torch.ones(2))
    assert hvd.allreduce_(parameter, op=hvd.Sum, prescale_factor=2.0) is parameter
    assert parameter.tolist() == [2.0, 2.0]
    assert parameter.is_leaf


def test_tensors_that_are_not_laid_out_in_order(hvd):
    tensor = torch.arange(6.0).view(2, 3).t()
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), tensor)
    expected = tensor * 2
    assert hvd.allreduce_(tensor, op=hvd.Sum, prescale_factor=2.0) is tensor
    assert torch.equal(tensor, expected)


def test_average_is_the_older_word(hvd):
    with pytest.warns(DeprecationWarning, match="replaced with `op`"):
        assert hvd.allreduce(torch.ones(1), average=True) == 1
    with pytest.raises(ValueError, match="supersedes"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)


@pytest.mark.parametrize("name", ["", "_", "_async", "_async_"])
@pytest.mark.parametrize("is_group", [False, True])
def test_the_older_word_is_told_of_at_the_scripts_own_line(hvd, name, is_group):
    operation = getattr(hvd, f"{'grouped_' * is_group}allreduce{name}")
    with pytest.warns(DeprecationWarning, match="replaced with `op`") as found:
        operation([torch.ones(1)] if is_group else torch.ones(1), average=False)
    assert [each.filename for each in found] == [__file__]


@pytest.mark.parametrize("compression", ["none", "fp16", "bf16"])
def test_compression(hvd, compression):
    tensor = torch.tensor([1.0, 0.5], requires_grad=True)
    result = hvd.allreduce(tensor, compression=getattr(hvd.Compression, compression), op=hvd.Sum)
    assert result.dtype is torch.float32
    result.sum().backward()
    assert tensor.grad.tolist() == [1.0, 1.0]


def test_groups(hvd):
    tensors = [torch.ones(2), torch.ones(3, dtype=torch.float64), torch.ones((), dtype=torch.int32)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum, prescale_factor=2.0)
    assert isinstance(results, list)
    for tensor, result in zip(tensors, results, strict=True):
        assert torch.equal(result, tensor * 2)
    in_place = hvd.grouped_allreduce_(tensors, op=hvd.Sum, prescale_factor=2.0)
    assert all(a is b for a, b in zip(in_place, tensors, strict=True))
    assert torch.equal(tensors[0], torch.full((2,), 2.0))
    number = hvd.grouped_allreduce_async(tensors, name="g", op=hvd.Sum)
    assert len(hvd.synchronize(number)) == 3


def test_gradients_are_reduced_like_the_tensor(hvd):
    tensor = torch.ones(3, dtype=torch.float64, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=3.0).sum().backward()
    assert tensor.grad.tolist() == [3.0] * 3
    parts = [torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)]
    first, second = hvd.grouped_allreduce(parts, op=hvd.Sum, postscale_factor=2.0)
    (first.sum() + 5 * second.sum()).backward()
    assert parts[0].grad.tolist() == [2.0, 2.0]
    assert parts[1].grad.tolist() == [10.0]


def test_gradients_of_gradients(hvd):
    tensor = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(hvd.allreduce(tensor, op=hvd.Sum) ** 3, tensor, create_graph=True)
    (second,) = torch.autograd.grad(grad, tensor)
    assert second.item() == 12.0


def test_sparse_tensors_give_a_function_to_call(hvd):
    sparse = torch.sparse_coo_tensor([[0, 2, 2]], [1.0, 2.0, 3.0], (4,), check_invariants=True)
    result = hvd.sparse_allreduce_async(sparse, name="s", op=hvd.Average)
    assert callable(result)
    assert torch.equal(result().to_dense(), sparse.to_dense())
    empty = torch.zeros(4, 2).to_sparse(1)
    result = hvd.sparse_allreduce_async(empty, name="e", op=hvd.Sum)()
    assert torch.equal(result.to_dense(), torch.zeros(4, 2))


@pytest.mark.parametrize("op", ["Min", "Max", "Product", "Adasum"])
def test_sparse_tensors_have_sums_and_means_only(hvd, op):
    with pytest.raises(ValueError, match="by Average or Sum, got"):
        hvd.sparse_allreduce_async(torch.eye(2).to_sparse(1), "s", getattr(hvd, op))


def test_a_sparse_tensor_is_no_dense_one(hvd):
    with pytest.raises(ValueError, match="sparse"):
        hvd.allreduce(torch.eye(2).to_sparse())
