from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme
from bireme.errors import ConfigError
from bireme.train.split import as_context, device_of, move, split_and_load, split_data

Pair = namedtuple("Pair", "x y")


def sizes(slices):
    return [len(part) for part in slices]


def test_uneven_splits_match_upstream():
    ten = torch.arange(10)
    assert sizes(split_data(ten, 4, even_split=False)) == [3, 3, 2, 2]
    assert sizes(split_data(ten, 3, work_load_list=[1, 1, 1])) == [3, 3, 4]
    assert sizes(split_data(ten, 3, work_load_list=[1, 2, 3])) == [2, 3, 5]
    assert sizes(split_data(torch.arange(2), 4, even_split=False)) == [1, 1, 0, 0]


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(1, 8))
def test_slices_put_together_are_the_batch(batch_size, num_slice):
    data = {"x": torch.arange(batch_size * 2).reshape(batch_size, 2), "y": np.arange(batch_size)}
    slices = split_data(data, num_slice, even_split=False)
    assert torch.equal(torch.cat([part["x"] for part in slices]), data["x"])
    assert np.array_equal(np.concatenate([part["y"] for part in slices]), data["y"])


def test_every_leaf_is_split_alike_along_the_axis():
    data = Pair(torch.zeros(3, 4), [np.zeros((1, 4)), None])
    left, right = split_data(data, 2, batch_axis=1)
    assert isinstance(left, Pair)
    assert left.x.shape == (3, 2)
    assert right.y[0].shape == (1, 2)
    assert right.y[1] is None
    assert split_data(torch.zeros(3, 4), 4, batch_axis=-1)[3].shape == (3, 1)


def test_slices_are_views():
    data = torch.zeros(4)
    split_data(data, 2)[1].fill_(1)
    assert data.tolist() == [0, 0, 1, 1]


def test_what_does_not_divide_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match=r"batch of 10 .* 4 slices; .* even_split=False"):
        split_data(torch.arange(10), 4)
    with pytest.raises(ConfigError, match=r"one number per slice \(2\)"):
        split_data(torch.arange(10), 2, work_load_list=[1])
    with pytest.raises(ConfigError, match="num_slice"):
        split_data(torch.arange(10), 0)
    with pytest.raises(ConfigError, match="differ in batch size"):
        split_data((torch.zeros(2), torch.zeros(4)), 2)


def test_load_makes_tensors_on_each_context():
    contexts = [bireme.cpu(0), "cpu(1)", torch.device("cpu"), "cpu:3"]
    parts = split_and_load({"x": np.arange(8, dtype=np.float32)}, contexts)
    assert [part["x"].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert parts[0]["x"].dtype == torch.float32
    whole = torch.arange(3)
    (part,) = split_and_load(whole, [bireme.cpu()])
    assert part.data_ptr() == whole.data_ptr()
    assert sizes(split_and_load(whole, contexts[:2], work_load_list=[2, 1])) == [2, 1]


def test_read_only_and_reversed_arrays_are_copied_not_warned_about():
    array = np.arange(4.0)
    array.flags.writeable = False
    assert split_and_load(array, ["cpu"])[0].tolist() == [0, 1, 2, 3]
    assert split_and_load(np.arange(4)[::-1], ["cpu"])[0].tolist() == [3, 2, 1, 0]
    with pytest.raises(ConfigError, match="no dtype for an array of <U1"):
        move(np.array(["a"]), torch.device("cpu"))


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ([], "empty"),
        (bireme.cpu(), "must be a list"),
        ("cpu(0)", "must be a list"),
        (2, "must be a list of contexts, got 2"),
        ([3], "expected a context"),
        (["tpu(0)"], "cannot read 'tpu"),
        (["gpu(99)"], r"gpu\(99\) does not exist"),
    ],
)
def test_bad_contexts_are_refused(contexts, message):
    with pytest.raises(ConfigError, match=message):
        split_and_load(torch.zeros(4), contexts)


def test_contexts_have_devices():
    assert as_context("gpu(2)") == bireme.gpu(2)
    assert device_of(bireme.cpu(7)) == torch.device("cpu")
