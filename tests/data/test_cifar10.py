import pickle

import numpy as np
import pytest

from bireme.data.cifar10 import load_cifar10, read_cifar10_binary, read_cifar10_python
from bireme.errors import ConfigError, DataError

NAMES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]


def batch(n, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3072), dtype=np.uint8), rng.integers(0, 10, n).tolist()


def write_binary(directory, n=4):
    directory.mkdir(exist_ok=True)
    for seed, name in enumerate(NAMES):
        pixels, labels = batch(n, seed)
        records = np.concatenate([np.uint8(labels)[:, None], pixels], axis=1)
        records.tofile(directory / f"{name}.bin")


def write_python(directory, n=4):
    directory.mkdir(exist_ok=True)
    for seed, name in enumerate(NAMES):
        pixels, labels = batch(n, seed)
        content = {"batch_label": name, "labels": labels, "data": pixels, "filenames": ["a.png"]}
        (directory / name).write_bytes(pickle.dumps(content, protocol=2))


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin", "cifar-10-batches-py"])
@pytest.mark.parametrize("write", [write_binary, write_python])
def test_both_versions_hold_the_same_images(tmp_path, write, inside):
    write(tmp_path / inside)
    train, test = load_cifar10(tmp_path)
    assert train.images.shape == (20, 3, 32, 32)
    assert test.images.shape == (4, 3, 32, 32)
    for seed, images, labels in [
        (0, train.images[:4], train.labels[:4]),
        (4, train.images[16:], train.labels[16:]),
        (5, test.images, test.labels),
    ]:
        pixels, expected = batch(4, seed)
        np.testing.assert_array_equal(images, pixels.reshape(4, 3, 32, 32))
        assert labels.tolist() == expected
        assert labels.dtype == np.int64


def test_the_binary_version_is_preferred(tmp_path):
    write_python(tmp_path, n=2)
    write_binary(tmp_path, n=3)
    assert len(load_cifar10(tmp_path)[1]) == 3


@pytest.mark.parametrize(("write", "suffix"), [(write_binary, ".bin"), (write_python, "")])
def test_missing_files_are_named(tmp_path, write, suffix):
    write(tmp_path)
    (tmp_path / f"data_batch_3{suffix}").unlink()
    (tmp_path / f"test_batch{suffix}").unlink()
    with pytest.raises(ConfigError, match=f"missing data_batch_3{suffix}, test_batch{suffix}$"):
        load_cifar10(tmp_path)


def test_a_packed_archive_says_how_to_unpack_it(tmp_path):
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(b"\x1f\x8b")
    with pytest.raises(ConfigError, match=r"tar -xf .*cifar-10-binary\.tar\.gz"):
        load_cifar10(archive)
    with pytest.raises(ConfigError, match=r"data_batch_1\.bin .* tar -xf .*binary\.tar\.gz"):
        load_cifar10(tmp_path)
    with pytest.raises(ConfigError, match=r"not a directory$"):
        load_cifar10(tmp_path / "nowhere")


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_binary_files_hold_whole_records(tmp_path, size):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(DataError, match=f"records of 3073 bytes, found {size} bytes"):
        read_cifar10_binary(path)


def test_labels_are_checked(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(3073) + b"\x0a" + bytes(3072))
    with pytest.raises(DataError, match="image 1 has label 10"):
        read_cifar10_binary(tmp_path / "a.bin")
    content = {"data": np.zeros((1, 3072), np.uint8), "labels": [-1]}
    (tmp_path / "a").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match="image 0 has label -1"):
        read_cifar10_python(tmp_path / "a")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"labels": [1]}, "'data' of shape .* found NoneType"),
        ({"data": np.zeros((1, 3073), np.uint8), "labels": [1]}, r"found \(1, 3073\)"),
        ({"data": np.zeros(3072, np.uint8), "labels": [1]}, r"found \(3072,\)"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, "2 images but 1 labels"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": ["1"]}, "list of integers"),
        ({"data": np.zeros((1, 3072), np.uint8)}, "list of integers"),
    ],
)
def test_python_files_hold_images_and_labels(tmp_path, content, says):
    (tmp_path / "a").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match=says):
        read_cifar10_python(tmp_path / "a")


@pytest.mark.parametrize("read", [read_cifar10_binary, read_cifar10_python])
def test_a_missing_file_is_the_callers_mistake(tmp_path, read):
    with pytest.raises(ConfigError, match="no such file"):
        read(tmp_path / "nothing")
