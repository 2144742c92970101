from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

from bireme.errors import ConfigError
from bireme.train.nested import batch_size_of, leaves, map_leaves, merge

Pair = namedtuple("Pair", "x y")


def test_map_keeps_every_container():
    data = {
        "a": [torch.ones(2), None],
        "b": Pair(np.ones(2), (torch.zeros(2),)),
        "c": OrderedDict(z=torch.ones(1)),
    }
    shapes = map_leaves(lambda leaf: tuple(leaf.shape), data)
    assert shapes == {"a": [(2,), None], "b": Pair((2,), ((2,),)), "c": OrderedDict(z=(1,))}
    assert isinstance(shapes["b"], Pair)
    assert isinstance(shapes["c"], OrderedDict)


def test_paths_say_where_a_leaf_is():
    data = {"x": [torch.ones(1), (np.ones(1),)]}
    assert [path for path, _ in leaves(data)] == ["data['x'][0]", "data['x'][1][0]"]


@pytest.mark.parametrize("stranger", ["text", 3, {1, 2}, object()])
def test_a_strange_leaf_is_named(stranger):
    with pytest.raises(ConfigError, match=r"data\['x'\]\[1\] is a"):
        batch_size_of({"x": [torch.ones(2), stranger]})


def test_batch_size_must_agree_and_exist():
    assert batch_size_of([torch.ones(3, 2), np.ones((3,)), None]) == 3
    assert batch_size_of(torch.ones(3, 2), 1) == 2
    assert batch_size_of(torch.ones(3, 2), -1) == 2
    with pytest.raises(ConfigError, match=r"data\[0\]: 3, data\[1\]: 4"):
        batch_size_of((torch.ones(3), torch.ones(4)))
    with pytest.raises(ConfigError, match=r"label is a str"):
        batch_size_of("x", name="label")
    with pytest.raises(ConfigError, match="no batch axis 1"):
        batch_size_of(torch.ones(3), 1)
    with pytest.raises(ConfigError, match="no batch axis 0"):
        batch_size_of(torch.tensor(1.0))
    with pytest.raises(ConfigError, match="no tensor and no array"):
        batch_size_of({"x": None})
    with pytest.raises(ConfigError, match="batch_axis must be an integer"):
        batch_size_of(torch.ones(3), 0.0)


def test_merge_joins_leaf_by_leaf():
    parts = [{"x": torch.ones(1), "y": (torch.zeros(2), None)} for _ in range(2)]
    joined = merge(parts, torch.cat)
    assert joined["x"].tolist() == [1, 1]
    assert joined["y"][0].tolist() == [0, 0, 0, 0]
    assert joined["y"][1] is None


def test_merge_refuses_what_does_not_fit_together():
    with pytest.raises(ConfigError, match="differ in structure"):
        merge([[torch.ones(1)], (torch.ones(1),)], torch.cat)
    with pytest.raises(ConfigError, match="differ in structure"):
        merge([[torch.ones(1)], [torch.ones(1)] * 2], torch.cat)
    with pytest.raises(ConfigError, match="tensors only, got a str"):
        merge(["a", "b"], torch.cat)


def test_a_container_that_cannot_be_rebuilt_is_named():
    class Odd(list):
        def __init__(self, one, two):
            super().__init__([one, two])

    with pytest.raises(ConfigError, match="cannot rebuild a Odd"):
        map_leaves(lambda leaf: leaf, Odd(torch.ones(1), torch.ones(1)))
