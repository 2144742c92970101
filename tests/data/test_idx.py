import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from bireme.data.idx import load_mnist, read_idx
from bireme.errors import ConfigError, DataError

CODES = {"uint8": 8, "int8": 9, "int16": 11, "int32": 12, "float32": 13, "float64": 14}


def idx_bytes(array):
    header = struct.pack(f">HBB{array.ndim}I", 0, CODES[array.dtype.name], array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write(path, content, *, pack=False):
    path.write_bytes(gzip.compress(content, mtime=0) if pack else content)
    return path


@given(
    array=npst.arrays(
        st.sampled_from([np.dtype(name) for name in CODES]),
        npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
    ),
    pack=st.booleans(),
)
def test_reads_back_every_type_and_shape(tmp_path_factory, array, pack):
    path = write(tmp_path_factory.mktemp("idx") / "file", idx_bytes(array), pack=pack)
    read = read_idx(path)
    assert read.dtype == array.dtype
    assert read.dtype.isnative
    assert read.flags.writeable
    np.testing.assert_array_equal(read, array)


def test_values_are_big_endian(tmp_path):
    path = write(tmp_path / "file", bytes.fromhex("00000b01 00000002 0102 fffe"))
    assert read_idx(path).tolist() == [258, -2]


GOOD = idx_bytes(np.arange(6, dtype=np.uint8).reshape(2, 3))


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "found nothing"),
        (b"\0\0\x08", "found 00 00 08"),
        (b"\0\1" + GOOD[2:], "not an IDX file"),
        (b"\0\0\x0a" + GOOD[3:], "found 00 00 0a 02"),
        (b"\0\0\x08\0" + GOOD[4:], "found 0"),
        (b"\0\0\x08\x40" + GOOD[4:], "found 64"),
        (GOOD[:9], "expected 2 dimensions of 4 bytes, found 5 bytes"),
        (GOOD[:-1], r"expected 6 bytes|announces \(2, 3\)"),
        (GOOD + b"\0", "found more"),
        (b"\x89PNG\r\n", "found 89 50 4e 47"),
    ],
)
def test_damage_is_named(tmp_path, content, says, pack):
    path = write(tmp_path / "some-file", content, pack=pack)
    with pytest.raises(DataError, match=says) as caught:
        read_idx(path)
    assert "some-file" in str(caught.value)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("sizes", [(2**32 - 1,) * 4, (2**31, 2), (2**24, 2**6)])
def test_a_lying_header_takes_no_memory(tmp_path, sizes, pack):
    content = struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + bytes(100)
    path = write(tmp_path / "file", content, pack=pack)
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 4, 8, 12, 20])
def test_a_cut_gzip_file_is_damage(tmp_path, cut):
    packed = gzip.compress(GOOD, mtime=0)
    path = tmp_path / "file.gz"
    path.write_bytes(packed[:-cut])
    with pytest.raises(DataError, match=r"file\.gz"):
        read_idx(path)


def test_a_flipped_bit_in_a_gzip_file_is_damage(tmp_path):
    packed = bytearray(gzip.compress(GOOD, mtime=0))
    packed[-6] ^= 1  # in the checksum
    (tmp_path / "file.gz").write_bytes(packed)
    with pytest.raises(DataError, match="CRC"):
        read_idx(tmp_path / "file.gz")


def test_a_missing_file_is_the_callers_mistake(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_idx(tmp_path / "nothing")


def write_mnist(directory, *, mark="-", pack=False, changes=None):
    files = {
        f"train-images{mark}idx3-ubyte": np.arange(5 * 4, dtype=np.uint8).reshape(5, 2, 2),
        f"train-labels{mark}idx1-ubyte": np.arange(5, dtype=np.uint8),
        f"t10k-images{mark}idx3-ubyte": np.ones((3, 2, 2), np.uint8),
        f"t10k-labels{mark}idx1-ubyte": np.arange(3, dtype=np.uint8),
    }
    files |= changes or {}
    for name, array in files.items():
        write(directory / (name + ".gz" * pack), idx_bytes(array), pack=pack)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("mark", ["-", "."])
def test_mnist_under_all_its_names(tmp_path, mark, pack):
    write_mnist(tmp_path, mark=mark, pack=pack)
    train, test = load_mnist(tmp_path)
    assert train.images.shape == (5, 1, 2, 2)
    assert test.images.shape == (3, 1, 2, 2)
    assert train.labels.tolist() == [0, 1, 2, 3, 4]
    assert train.labels.dtype == np.int64
    assert train.images[1].ravel().tolist() == [4, 5, 6, 7]


def test_mnist_lists_the_names_it_looked_for(tmp_path):
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ConfigError) as caught:
        load_mnist(tmp_path)
    for stem in ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte"):
        assert f"{stem}," in str(caught.value)
        assert f"{stem}.gz" in str(caught.value)
    with pytest.raises(ConfigError, match="no such directory"):
        load_mnist(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"t10k-labels-idx1-ubyte": np.arange(4, dtype=np.uint8)}, "3 images, .* 4 labels"),
        ({"train-images-idx3-ubyte": np.zeros(5, np.uint8)}, "expected unsigned bytes in 3"),
        ({"train-labels-idx1-ubyte": np.zeros(5, np.int32)}, "found int32 in 1"),
        ({"t10k-images-idx3-ubyte": np.zeros((3, 2, 3), np.uint8)}, "test images"),
    ],
)
def test_mnist_files_must_belong_together(tmp_path, changes, says):
    write_mnist(tmp_path, changes=changes)
    with pytest.raises(DataError, match=says):
        load_mnist(tmp_path)
