import numpy as np
import pytest
from safetensors.numpy import load_file

from bireme.errors import DataError
from bireme.node.tables.parts import PartReader, PartWriter, kind_of

COLUMNS = {
    "ids": np.array([5, -1, 2**40]),
    "values": np.arange(6, dtype=np.float32).reshape(3, 2),
    "step": np.array([1.0, 2.0, 3.0]),
}


def write(path, columns=COLUMNS):
    kinds = {name: each[:0] for name, each in columns.items()}
    writer = PartWriter(str(path), kinds, len(columns["ids"]), {"version": 9})
    for begin in range(len(columns["ids"])):
        writer.write(begin, {name: each[begin : begin + 1] for name, each in columns.items()})
    return writer


def test_a_part_is_a_plain_safetensors_file(tmp_path):
    write(tmp_path / "part").finish()
    assert [path.name for path in tmp_path.iterdir()] == ["part"]
    found = load_file(tmp_path / "part")
    assert all(np.array_equal(found[name], each) for name, each in COLUMNS.items())
    reader = PartReader(str(tmp_path / "part"))
    assert (reader.num_rows, reader.about["version"]) == (3, 9)
    assert reader.kinds() == {name: kind_of(each) for name, each in COLUMNS.items()}
    assert reader.read(1, 3)["values"].tolist() == [[2, 3], [4, 5]]


def test_nothing_appears_before_it_is_whole(tmp_path):
    writer = write(tmp_path / "part")
    assert not (tmp_path / "part").exists()
    writer.abandon()
    assert not list(tmp_path.iterdir())


def test_a_part_without_rows(tmp_path):
    write(tmp_path / "part", {name: each[:0] for name, each in COLUMNS.items()}).finish()
    assert PartReader(str(tmp_path / "part")).num_rows == 0


@pytest.mark.parametrize("cut", [0, 7, 40, -1])
def test_damaged_files_are_refused(tmp_path, cut):
    write(tmp_path / "part").finish()
    whole = (tmp_path / "part").read_bytes()
    (tmp_path / "part").write_bytes(whole[:cut])
    with pytest.raises(DataError, match="part"):
        PartReader(str(tmp_path / "part"))


def test_other_files_are_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"ids": np.zeros(2, np.int64)}, tmp_path / "other")
    with pytest.raises(DataError, match="save"):
        PartReader(str(tmp_path / "other"))
    with pytest.raises(FileNotFoundError):
        PartReader(str(tmp_path / "none"))
