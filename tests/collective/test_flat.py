import pytest
import torch

from bireme.collective.flat import Flat, check_many, check_root, check_whole, split_rows, write_back
from bireme.errors import ConfigError, UnsupportedError


def test_contiguous_tensors_are_used_as_they_are():
    tensor = torch.ones(3)
    assert Flat(tensor).tensor is tensor


def test_others_are_copied_and_written_back():
    base = torch.zeros(3, 4)
    tensors = [
        base.t(),
        torch.ones(2, dtype=torch.complex64).conj(),
        base.expand(2, 3, 4)[0][:, ::2],
    ]
    for tensor in tensors:
        flat = Flat(tensor)
        assert flat.tensor.is_contiguous()
        assert not flat.tensor.is_conj()
        flat.tensor.fill_(5)
        write_back([flat])
        assert (tensor == 5).all()


def test_an_expanded_tensor_is_written_back():
    tensor = torch.zeros(2, 1).expand(3, 2, 4)
    flat = Flat(tensor)
    flat.tensor.copy_(torch.tensor([5.0, 6.0])[:, None].expand(3, 2, 4))
    flat.write_back()
    assert tensor[2, :, 3].tolist() == [5.0, 6.0]


def test_a_parameter_may_be_written_back():
    parameter = torch.nn.Parameter(torch.zeros(3, 4).t())
    flat = Flat(parameter)
    flat.tensor.fill_(2)
    flat.write_back()
    assert parameter.sum() == 24


@pytest.mark.parametrize(
    ("tensor", "word"),
    [(torch.ones(1).to("meta"), "on the CPU"), (torch.eye(2).to_sparse(), "sparse")],
)
def test_other_memory_is_refused(tensor, word):
    with pytest.raises(UnsupportedError, match=word):
        Flat(tensor)


def test_rows_are_split_as_told_or_equally():
    tensor = torch.arange(12.0).view(6, 2)
    assert [each.numel() for each in split_rows(tensor, [], 3, "input")] == [4, 4, 4]
    assert [each.numel() for each in split_rows(tensor, [1, 0, 5], 3, "input")] == [2, 0, 10]
    assert [each.numel() for each in split_rows(torch.ones(0, 3), [], 2, "input")] == [0, 0]
    for splits, size in (([], 4), ([3, 2], 2), ([3, 3], 3), ([7, -1], 2)):
        with pytest.raises(ConfigError):
            split_rows(tensor, splits, size, "input")


def test_checks():
    flat = [Flat(torch.ones(2)), Flat(torch.ones(3))]
    check_many("x", flat, 2, torch.float32)
    check_root(1, 2)
    check_whole("x", torch.ones(6), torch.ones(3), 2)
    for call in (
        lambda: check_many("x", flat, 3, torch.float32),
        lambda: check_many("x", flat, 2, torch.float64),
        lambda: check_many("x", flat, 2, torch.float32, 2),
        lambda: check_root(-1, 2),
        lambda: check_root(2, 2),
        lambda: check_whole("x", torch.ones(5), torch.ones(3), 2),
        lambda: check_whole("x", torch.ones(6).int(), torch.ones(3), 2),
    ):
        with pytest.raises(ConfigError):
            call()
