"""CIFAR-10, from its binary or its Python version.

Called by training scripts. The archives are unpacked by the user; both make a directory of six
files, and either that directory or the one around it may be named.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bireme.data.arrays import Array, LabelledImages
from bireme.data.python_batches import read_python_batch
from bireme.errors import ConfigError, DataError

__all__ = ("load_cifar10", "read_cifar10_binary", "read_cifar10_python")

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_RECORD_BYTES = 1 + _PIXELS
_NUM_CLASSES = 10


def load_cifar10(data_dir: str | Path) -> tuple[LabelledImages, LabelledImages]:
    """Return CIFAR-10's training and test data.

    Args:
        data_dir: The unpacked directory (``cifar-10-batches-bin`` or ``cifar-10-batches-py``),
            or the one that holds it. The binary version is taken where both are there.

    Returns:
        Images uint8 of shape (n, 3, 32, 32), channels red, green, blue; 50,000 and 10,000 in
        the original.

    Raises:
        ConfigError: There is no such directory, or a file is missing.
        DataError: A file is damaged.
    """
    directory = Path(data_dir)
    if not directory.is_dir():
        hint = f"; unpack it first: tar -xf {directory}" if directory.is_file() else ""
        raise ConfigError(f"{directory}: not a directory{hint}")
    base, suffix, read = _find_version(directory)
    train_files = [base / f"data_batch_{number}{suffix}" for number in range(1, 6)]
    test_file = base / f"test_batch{suffix}"
    missing = [file.name for file in (*train_files, test_file) if not file.is_file()]
    if missing:
        raise ConfigError(f"{base}: missing {', '.join(missing)}")
    batches = [read(file) for file in train_files]
    train = LabelledImages(
        np.concatenate([batch.images for batch in batches]),
        np.concatenate([batch.labels for batch in batches]),
    )
    return train, read(test_file)


def read_cifar10_binary(path: str | Path) -> LabelledImages:
    """Return the images of one file of the binary version, such as ``data_batch_1.bin``.

    Raises:
        ConfigError: There is no such file.
        DataError: Its size is not a whole number of records, or a label is not in 0..9.

    Source:
        "Binary version" on the CIFAR-10 page of A. Krizhevsky: records of one label byte and
        3,072 pixels, the red, green and blue plane in this order.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    size_bytes = path.stat().st_size
    if size_bytes == 0 or size_bytes % _RECORD_BYTES:
        raise DataError(
            f"{path}: expected a whole number of records of {_RECORD_BYTES} bytes, found "
            f"{size_bytes} bytes; it is truncated or not the binary version"
        )
    records = np.fromfile(path, np.uint8).reshape(-1, _RECORD_BYTES)
    return _labelled(path, records[:, 1:], records[:, 0])


def read_cifar10_python(path: str | Path) -> LabelledImages:
    """Return the images of one file of the Python version, such as ``data_batch_1``.

    Raises:
        ConfigError: There is no such file.
        DataError: It is damaged, or holds anything but the images, labels and names expected.

    Guarantees:
        Nothing in the file is run.

    Source:
        "Dataset layout" on the CIFAR-10 page of A. Krizhevsky.
    """
    path = Path(path)
    batch = read_python_batch(path)
    pixels, labels = batch.get("data"), batch.get("labels")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        found = pixels.shape if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise DataError(f"{path}: expected 'data' of shape (n, {_PIXELS}), found {found}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{path}: expected 'labels' to be a list of integers")
    if len(labels) != len(pixels):
        raise DataError(f"{path}: {len(pixels)} images but {len(labels)} labels")
    return _labelled(path, pixels, np.array(labels, dtype=np.int64))


def _find_version(
    directory: Path,
) -> tuple[Path, str, Callable[[str | Path], LabelledImages]]:
    places = [directory, directory / "cifar-10-batches-bin", directory / "cifar-10-batches-py"]
    for suffix, read in ((".bin", read_cifar10_binary), ("", read_cifar10_python)):
        for place in places:
            if (place / f"data_batch_1{suffix}").is_file():
                return place, suffix, read
    archives = sorted(directory.glob("cifar-10-*.tar.gz"))
    hint = f"; unpack {archives[0].name} first: tar -xf {archives[0]}" if archives else ""
    raise ConfigError(
        f"{directory}: no CIFAR-10; looked for data_batch_1.bin (binary version) and "
        f"data_batch_1 (Python version), here and in cifar-10-batches-bin and -py{hint}"
    )


def _labelled(path: Path, pixels: Array, labels: Array) -> LabelledImages:
    wrong = np.flatnonzero((labels < 0) | (labels >= _NUM_CLASSES))
    if len(wrong):
        raise DataError(
            f"{path}: image {wrong[0]} has label {labels[wrong[0]]}, expected 0 to "
            f"{_NUM_CLASSES - 1}"
        )
    images = np.ascontiguousarray(pixels).reshape(-1, *_SHAPE)
    return LabelledImages(images, labels.astype(np.int64))
