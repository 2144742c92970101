import numpy as np
import pytest

from bireme.data.arrays import LabelledImages
from bireme.errors import ConfigError


def numbered(n: int) -> LabelledImages:
    images = np.arange(n, dtype=np.uint8).reshape(n, 1, 1, 1)
    return LabelledImages(images, np.arange(n, dtype=np.int64))


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (np.zeros((2, 8, 8), np.uint8), np.zeros(2, np.int64), "channels"),
        (np.zeros((2, 1, 8, 8), np.int32), np.zeros(2, np.int64), "int32"),
        (np.zeros((2, 1, 8, 8), np.uint8), np.zeros(2, np.int32), "int32"),
        (np.zeros((2, 1, 8, 8), np.uint8), np.zeros((2, 1), np.int64), r"\(2, 1\)"),
        (np.zeros((2, 1, 8, 8), np.uint8), np.zeros(3, np.int64), "2 images but 3 labels"),
    ],
)
def test_refuses_arrays_that_do_not_fit(images, labels, says):
    with pytest.raises(ConfigError, match=says):
        LabelledImages(images, labels)


def test_scaled_maps_bytes_to_the_unit_interval():
    data = LabelledImages(np.array([0, 51, 255], np.uint8).reshape(3, 1, 1, 1), np.arange(3))
    scaled = data.scaled()
    np.testing.assert_array_equal(scaled.images.ravel(), np.float32([0, 0.2, 1]))
    assert scaled.images.dtype == np.float32
    assert scaled.scaled().images is scaled.images


def test_split_is_an_exact_partition_with_images_and_labels_together():
    train, test = numbered(100).split(30, seed=3)
    assert (len(train), len(test)) == (70, 30)
    assert sorted([*train.labels.tolist(), *test.labels.tolist()]) == list(range(100))
    for part in (train, test):
        np.testing.assert_array_equal(part.images.ravel(), part.labels)


def test_split_depends_on_the_seed_only():
    first, again, other = (numbered(100).split(30, seed=seed)[1].labels for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.tolist() != other.tolist()
    # Frozen: a split must not change between versions, or published accuracies do.
    assert numbered(10).split(3)[1].labels.tolist() == [0, 2, 9]


@pytest.mark.parametrize(("num_test", "seed"), [(0, 0), (10, 0), (-1, 0), (3, -1)])
def test_split_refuses_values_out_of_range(num_test, seed):
    with pytest.raises(ConfigError):
        numbered(10).split(num_test, seed=seed)
