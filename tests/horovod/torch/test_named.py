import pytest
import torch

from bireme.errors import ConfigError
from bireme.horovod.torch.named import bunches, check_groups, name_parameters, unnamed


@pytest.fixture
def params():
    return [torch.nn.Parameter(torch.zeros(n + 1)) for n in range(4)]


def test_names_of_the_user_or_numbers(params):
    groups = [{"params": params[:3]}, {"params": params[3:]}]
    assert list(name_parameters(groups, None).values()) == [
        *(f"allreduce.noname.0.{n}" for n in range(3)),
        "allreduce.noname.1.0",
    ]
    given = (pair for pair in zip("dcba", params, strict=True))
    assert name_parameters(groups, given)[params[3]] == "a"
    assert unnamed(1, 2) == "allreduce.noname.1.2"


def test_names_that_cannot_be_used(params):
    groups = [{"params": params}]
    with pytest.raises(ConfigError, match="sequence of tuples"):
        name_parameters(groups, params)
    with pytest.raises(ConfigError, match="Found duplicates: a, b"):
        name_parameters(groups, list(zip("abab", params, strict=True)))
    with pytest.raises(ConfigError, match=r"were not named: those of shape \(4,\) at 0.3"):
        name_parameters(groups, list(zip("abc", params, strict=False)))


@pytest.mark.parametrize("bad", [0, -1, True, "two", (1,), 1.5])
def test_groups_are_a_number_or_lists(bad):
    with pytest.raises(ConfigError, match="groups should be"):
        check_groups(bad)


def test_groups_hold_tensors_once(params):
    check_groups(None)
    check_groups(3)
    check_groups([params[:2], params[2:]])
    with pytest.raises(ConfigError, match="only appear once"):
        check_groups([params[:2], params[1:]])
    with pytest.raises(ConfigError, match=r"must consist of torch.Tensor, got str"):
        check_groups([["weight"]])


def test_every_parameter_is_in_one_bunch(params):
    def numbers(groups, of=params):
        return [[param.numel() - 1 for param in bunch] for bunch in bunches(of, groups)]

    assert numbers(None) == [[0], [1], [2], [3]]
    assert numbers(2) == [[0, 1], [2, 3]]
    assert numbers(9) == [[0], [1], [2], [3]]
    assert numbers([[params[3], params[1]], []]) == [[3, 1], [0], [2]]
    assert numbers([[params[3], params[1]]], of=params[:2]) == [[1], [0]]
