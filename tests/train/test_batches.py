from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bireme.errors import ConfigError
from bireme.train import batches

X, Y = torch.zeros(2), torch.ones(2)


def test_pairs_have_three_forms():
    Batch = namedtuple("Batch", "data label")
    for batch in ((X, Y), [X, Y], Batch(X, Y), {"label": Y, "data": X}):
        data, label = batches.pair(batch)
        assert data is X
        assert label is Y


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((X,), "a tuple of 1"),
        ((X, X, Y), "a tuple of 3"),
        ({"x": X, "y": Y}, r"a dict with keys \['x', 'y'\]"),
        (X, r"one Tensor of shape \(2,\)"),
        (3, "a int"),
    ],
)
def test_other_forms_are_described(batch, message):
    with pytest.raises(ConfigError, match=message):
        batches.pair(batch)


def test_inputs_may_come_without_labels():
    assert batches.inputs((X, Y)) is X
    assert batches.inputs([X]) is X
    assert batches.inputs({"data": X}) is X
    assert batches.inputs(X) is X
    named = {"tokens": X, "mask": Y}
    assert batches.inputs(named) is named


def test_one_shot_iterators_serve_one_epoch_only():
    one_shot = iter([(X, Y)])
    batches.check_repeatable("train_data", one_shot, 1)
    with pytest.raises(ConfigError, match=r"train_data is a one-shot list_iterator: .* epoch of 3"):
        batches.check_repeatable("train_data", one_shot, 3)
    batches.check_repeatable("train_data", [(X, Y)], 3)
    batches.check_repeatable("train_data", DataLoader(TensorDataset(X, Y)), 3)


@pytest.mark.parametrize("data", [X, np.zeros(2), "text", {"data": X}, None, 5])
def test_what_holds_no_batches_is_refused(data):
    with pytest.raises(ConfigError, match="iterable of batches"):
        batches.check_repeatable("train_data", data, 1)


def test_an_iterator_with_reset_starts_again():
    class Resetting:
        def __init__(self):
            self.rest = []

        def reset(self):
            self.rest = [1, 2]

        def __iter__(self):
            return self

        def __next__(self):
            if not self.rest:
                raise StopIteration
            return self.rest.pop()

    data = Resetting()
    batches.check_repeatable("data", data, 2)
    assert [list(batches.epoch_batches("data", data, epoch)) for epoch in (0, 1)] == [[2, 1]] * 2


def test_samplers_are_told_the_epoch():
    class Sampler:
        def set_epoch(self, epoch):
            self.epoch = epoch

    class Loader(list):
        sampler = Sampler()

    list(batches.epoch_batches("data", Loader([1]), 4))
    assert Loader.sampler.epoch == 4


def test_no_batch_at_all_is_an_error():
    with pytest.raises(ConfigError, match=r"eval_data has no batches \(epoch 2\)"):
        list(batches.epoch_batches("eval_data", [], 2))


def test_a_tensor_is_one_batch_for_prediction():
    assert batches.single_pass(X)[0] is X
    assert batches.length([1, 2]) == 2
    assert batches.length(iter([])) is None
