"""The files here are made with the real serialiser, and by hand where it would not make them."""

import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.data.python_batches import read_python_batch
from bireme.errors import ConfigError, DataError

PIXELS = np.arange(2 * 3072, dtype=np.uint64).astype(np.uint8).reshape(2, 3072)
CONTENT = {"batch_label": "training batch 1 of 5", "labels": [6, 9], "data": PIXELS}


def python2_batch(module="numpy.core.multiarray"):
    """Return what Python 2 wrote: byte strings for all text and for the pixels."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    pixels = PIXELS.tobytes()
    array = (
        b"c"
        + module.encode()
        + b"\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85"
        + text(b"b")
        + b"\x87Rq\x09(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\nq\x0a"
        + text(b"u1")
        + b"K\x00K\x01\x87Rq\x0b(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<I", len(pixels))
        + pixels
        + b"tb"
    )
    return (
        b"\x80\x02}q\x01(" + text(b"batch_label") + b"q\x02" + text(b"training batch 1 of 5")
        + b"q\x03" + text(b"labels") + b"q\x04]q\x05(K\x06K\x09e" + text(b"data") + b"q\x06"
        + array + b"u."
    )  # fmt: skip


def read(tmp_path, content):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    return read_python_batch(path)


def same(batch):
    np.testing.assert_array_equal(batch["data"], PIXELS)
    assert batch["data"].dtype == np.uint8
    assert batch["labels"] == CONTENT["labels"]
    assert batch["batch_label"] == CONTENT["batch_label"]
    return True


def test_the_handmade_file_is_what_it_claims_to_be():
    content = python2_batch("numpy._core.multiarray")
    assert same(pickle.loads(content, encoding="latin1"))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_reads_files_of_python_2(tmp_path, module):
    assert same(read(tmp_path, python2_batch(module)))


def test_reads_files_of_python_3(tmp_path):
    content = CONTENT | {"labels": [6, 9], "filenames": ["a.png", "b.png"]}
    batch = read(tmp_path, pickle.dumps(content, protocol=2))
    assert same(batch)
    assert batch["filenames"] == ["a.png", "b.png"]
    assert batch["data"].flags.writeable


def test_a_key_that_is_no_name_is_named(tmp_path):
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": 1}, protocol=2))
    with pytest.raises(DataError, match="strings as keys, found bytes"):
        read_python_batch(path)


def test_reads_many_entries(tmp_path):
    labels = np.random.default_rng(0).integers(0, 10, 10_000).tolist()
    assert read(tmp_path, pickle.dumps({"labels": labels}, protocol=2))["labels"] == labels


class Harm:
    def __reduce__(self):
        return print, ("harm was done",)


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"data": Harm()}, protocol=2),
        b"\x80\x02cos\nsystem\nU\x04true\x85R.",
        b"\x80\x02cnumpy\nload\nU\x01a\x85R.",
        b"\x80\x02}U\x01acbuiltins\neval\nU\x011\x85Rs.",
        b"\x80\x02(U\x01aios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02P0\n.",
        b"\x80\x02c_codecs\nencode\nU\x01aU\x04zlib\x86R.",
        b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.",
        b"\x80\x02cnumpy\nndarray\n)\x81.",
        pickle.dumps({"data": PIXELS.astype(np.int32)}, protocol=2),
        pickle.dumps({"data": np.asfortranarray(PIXELS)}, protocol=2),
        pickle.dumps({"data": np.array([Harm()], dtype=object)}, protocol=2),
    ],
)
def test_runs_nothing(tmp_path, capsys, content):
    with pytest.raises(DataError, match="not a CIFAR-10 batch") as caught:
        read(tmp_path, content)
    assert "data_batch_1" in str(caught.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no such thing",
        b"\x80\x02.",
        b"\x80\x02K\x01K\x02.",
        b"\x80\x02K\x01\x86.",
        b"\x80\x02e.",
        b"\x80\x02h\x05.",
        b"\x80\x02R.",
        b"\x80\x02]K\x01s.",
        b"\x80\x02K\x01K\x02a.",
        b"\x80\x02}(K\x01u.",
        b"\x80\x02}]K\x01s.",
        b"\x80\x02T\xff\xff\xff\x7fshort",
        b"\x80\x02]q\x00.",
        b"\x80\x02}K\x01K\x02s.",
        b"\x80\x02}q\x00U\x01ah\x00s.",
        b"\x80\x02" + b"K\x01" + b"\x85" * 100_000 + b"K\x02\x86" + b"R.",
        b"\x80\x02}K\x01" + b"\x85" * 100_000 + b"K\x02s.",
        b"\x80\x02}U\x01acnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b"
        b"\x87Rs.",
        python2_batch().replace(b"K\x02M\x00\x0c", b"K\x03M\x00\x0c"),
        python2_batch().replace(b"K\x02M\x00\x0c", b"NM\x00\x0c\x00"),
    ],
)
def test_damage_is_an_error_of_ours(tmp_path, content):
    with pytest.raises(DataError, match="data_batch_1"):
        read(tmp_path, content)


@settings(max_examples=60)
@given(cut=st.integers(0, len(python2_batch()) - 1))
def test_a_cut_file_is_damage(tmp_path_factory, cut):
    with pytest.raises(DataError):
        read(tmp_path_factory.mktemp("cut"), python2_batch()[:cut])


@settings(max_examples=200)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_either_a_dictionary_or_damage(tmp_path_factory, content):
    try:
        assert isinstance(read(tmp_path_factory.mktemp("any"), b"\x80\x02" + content), dict)
    except DataError:
        pass


def test_a_file_cannot_unfold_to_much_more_than_its_size(tmp_path):
    text = b"x" * 100_000
    encode = b"c_codecs\nencode\nh\x00U\x06latin1\x86R"
    content = b"\x80\x02T" + struct.pack("<I", len(text)) + text + b"q\x00" + encode * 100 + b"."
    with pytest.raises(DataError, match="unfolds"):
        read(tmp_path, content)


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "data_batch_1"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: takes no space
    with pytest.raises(DataError, match="too large"):
        read_python_batch(path)


def test_a_missing_file_is_the_callers_mistake(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        read_python_batch(tmp_path / "nothing")
