"""The IDX file format, and MNIST, which comes in it.

Called by training scripts. Every size is checked against the file before memory is taken, so
a damaged or hostile header costs nothing.
"""

import gzip
import io
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bireme.data.arrays import Array, LabelledImages
from bireme.errors import ConfigError, DataError

__all__ = ("load_mnist", "read_idx")

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_DIMENSIONS = 32
_DEFLATE_LIMIT = 1032
"""Deflate shrinks by this factor at most (zlib's technical details), so less is a lie."""
_CHUNK_BYTES = 1 << 20


def read_idx(path: str | Path) -> Array:
    r"""Return the array that an IDX file holds, gzip-compressed or plain.

    Args:
        path: The file; compression is recognised by content, not by name.

    Returns:
        A writable array in native byte order: uint8, int8, int16, int32, float32 or float64,
        as the file says.

    Raises:
        ConfigError: There is no such file.
        DataError: It is not an IDX file, is truncated or damaged, or has bytes left over.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
        >>> _ = file.write_bytes(b"\0\0\x08\x01" + b"\0\0\0\x02" + b"\x07\x03")
        >>> read_idx(file).tolist()
        [7, 3]

    Source:
        "The IDX file format", at the end of the MNIST database's page (Y. LeCun, C. Cortes and
        C. J. C. Burges).
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    try:
        with path.open("rb") as raw:
            size_bytes = path.stat().st_size
            if raw.read(2) != b"\x1f\x8b":
                raw.seek(0)
                return _read(raw, path, size_bytes)
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) as unpacked:
                return _read(unpacked, path, size_bytes * _DEFLATE_LIMIT)
    except (EOFError, zlib.error, OSError) as error:
        raise DataError(f"{path}: cannot be read or unpacked ({error}); get it again") from error


def load_mnist(data_dir: str | Path) -> tuple[LabelledImages, LabelledImages]:
    """Return MNIST's training and test data from the four files in ``data_dir``.

    Args:
        data_dir: Holds the images and labels of ``train`` and ``t10k``, each compressed
            (``.gz``) or not, named ``train-images-idx3-ubyte`` or ``train-images.idx3-ubyte``.

    Returns:
        Images uint8 of shape (n, 1, height, width): 60,000 and 10,000 of 28 by 28.

    Raises:
        ConfigError: A file is missing.
        DataError: A file is damaged, or the files do not belong together.
    """
    directory = Path(data_dir)
    if not directory.is_dir():
        raise ConfigError(f"{directory}: no such directory")
    train, test = (_load_half(directory, half) for half in ("train", "t10k"))
    if train.images.shape[1:] != test.images.shape[1:]:
        raise DataError(
            f"{directory}: training images of shape {train.images.shape[1:]} but test images "
            f"of {test.images.shape[1:]}"
        )
    return train, test


def _read(file: BinaryIO | gzip.GzipFile, path: Path, limit_bytes: int) -> Array:
    dtype, shape, header_bytes = _read_header(file, path)
    wanted_bytes = math.prod(shape) * dtype.itemsize
    if wanted_bytes > limit_bytes:
        raise DataError(
            f"{path}: the header announces {shape} items, {wanted_bytes} bytes, but the file "
            f"can hold {max(limit_bytes - header_bytes, 0)} at most; it is truncated or damaged"
        )
    content = io.BytesIO()
    while chunk := file.read(min(_CHUNK_BYTES, wanted_bytes + 1 - content.tell())):
        content.write(chunk)
    found_bytes = content.tell()
    if found_bytes != wanted_bytes:
        found = "more" if found_bytes > wanted_bytes else f"only {found_bytes}"
        raise DataError(
            f"{path}: expected {wanted_bytes} bytes of data for {shape} items, found {found}"
        )
    array = np.frombuffer(content.getbuffer(), dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def _read_header(
    file: BinaryIO | gzip.GzipFile, path: Path
) -> tuple[np.dtype[np.generic], tuple[int, ...], int]:
    magic = file.read(4)
    known = ", ".join(f"0x{code:02x}" for code in _DTYPES)
    if len(magic) != 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES:
        raise DataError(
            f"{path}: not an IDX file: expected two zero bytes and a type of {known}, "
            f"found {magic.hex(' ') or 'nothing'}"
        )
    if not 1 <= magic[3] <= _MOST_DIMENSIONS:
        raise DataError(f"{path}: expected 1 to {_MOST_DIMENSIONS} dimensions, found {magic[3]}")
    sizes = file.read(4 * magic[3])
    if len(sizes) != 4 * magic[3]:
        raise DataError(
            f"{path}: the header ends early: expected {magic[3]} dimensions of 4 bytes, found "
            f"{len(sizes)} bytes"
        )
    shape = struct.unpack(f">{magic[3]}I", sizes)
    return np.dtype(_DTYPES[magic[2]]), shape, 4 + len(sizes)


def _load_half(directory: Path, half: str) -> LabelledImages:
    image_file = _find(directory, half, "images", 3)
    label_file = _find(directory, half, "labels", 1)
    images, labels = read_idx(image_file), read_idx(label_file)
    for file, array, ndim in ((image_file, images, 3), (label_file, labels, 1)):
        if array.ndim != ndim or array.dtype != np.uint8:
            raise DataError(
                f"{file}: expected unsigned bytes in {ndim} dimensions, found {array.dtype} in "
                f"{array.ndim}"
            )
    if len(images) != len(labels):
        raise DataError(
            f"{image_file} holds {len(images)} images, but {label_file} {len(labels)} labels"
        )
    return LabelledImages(images[:, None], labels.astype(np.int64))


def _find(directory: Path, half: str, kind: str, ndim: int) -> Path:
    stems = [f"{half}-{kind}{mark}idx{ndim}-ubyte" for mark in "-."]
    names = [stem + suffix for suffix in ("", ".gz") for stem in stems]
    for name in names:
        if (directory / name).is_file():
            return directory / name
    raise ConfigError(f"{directory}: no {half} {kind}; looked for {', '.join(names)}")
