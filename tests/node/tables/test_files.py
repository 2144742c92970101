import numpy as np
import pytest
from tests.node.tables.samples import filled

from bireme.errors import ConfigError, StateError
from bireme.node.tables.cell import TableCell
from bireme.node.tables.files import TableFiles
from bireme.types.choices import Eviction
from bireme.update import OptimizerSpec
from bireme.wire.tables import TableSpec

ADAM = OptimizerSpec("adam", {"lr": 0.1})


def cell(optimizer=ADAM, **fields):
    table = TableCell(7, (1, 0), TableSpec(dim=2, **fields))
    if optimizer is not None:
        table.set_optimizer(optimizer)
    return table


def push(table, ids, version):
    entry, payload, offset = filled(ids, 1.0)
    table.finish(table.first(entry, payload, offset, 1.0), 1.0, 1.0, version)


def saved(folder):
    table = cell()
    push(table, list(range(10)), 5)
    push(table, [3, 4], 6)
    files = TableFiles(table)
    begun = files.command({"op": "save_begin", "folder": str(folder), "stem": "t"})
    assert begun == {"rows": 10, "file": "t.00000.safetensors"}
    for begin in range(0, 12, 4):
        files.command({"op": "save_rows", "begin": begin, "end": begin + 4})
    files.command({"op": "save_end"})
    return table


def load(folder, table, *, state=True):
    files = TableFiles(table)
    body = {"folder": str(folder), "files": ["t.00000.safetensors"], "state": state}
    assert files.command({"op": "load_begin", **body}) == {"rows": [10]}
    for begin in range(0, 10, 3):
        files.command({"op": "load_rows", "part": 0, "begin": begin, "end": begin + 3})
    return files


def test_every_server_takes_its_rows_and_together_they_have_all(tmp_path):
    whole = saved(tmp_path)
    parts = [cell(index=index, num_slots=3) for index in range(3)]
    for table in parts:
        load(tmp_path, table).command({"op": "load_end"})
    assert sorted(np.concatenate([each.rows.index.ids for each in parts])) == list(range(10))
    push(whole, [3, 7], 7)
    for table in parts:
        mine = table.rows.index.ids
        push(table, [row for row in (3, 7) if row in mine], 1)
        assert np.array_equal(table.rows.read(mine), whole.rows.read(mine))


def test_rounds_of_last_updates_go_on_from_here(tmp_path):
    saved(tmp_path)
    table = cell(max_rows=10, eviction=Eviction.LRU)
    load(tmp_path, table).command({"op": "load_end"})
    push(table, [100], 1)
    assert 100 in table.rows.index.ids
    assert {3, 4} <= set(table.rows.index.ids.tolist())


def test_rows_are_replaced_at_the_end_or_not_at_all(tmp_path):
    saved(tmp_path)
    table = cell()
    push(table, [50], 1)
    files = load(tmp_path, table)
    assert table.rows.index.ids.tolist() == [50]
    files.command({"op": "abort"})
    with pytest.raises(StateError, match="loading"):
        files.command({"op": "load_end"})
    assert table.rows.index.ids.tolist() == [50]


def test_rows_alone_have_no_state(tmp_path):
    saved(tmp_path)
    table = cell(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
    load(tmp_path, table, state=False).command({"op": "load_end"})
    before = table.rows.read(np.array([3]))
    push(table, [3], 1)
    assert np.allclose(before - table.rows.read(np.array([3])), 1.0)


def test_what_does_not_fit_is_refused(tmp_path):
    saved(tmp_path)
    files = TableFiles(TableCell(7, (1, 0), TableSpec(dim=3)))
    body = {"folder": str(tmp_path), "files": ["t.00000.safetensors"], "state": True}
    with pytest.raises(ConfigError, match="'values'"):
        files.command({"op": "load_begin", **body})
    with pytest.raises(ConfigError, match="every server sees"):
        files.command({"op": "load_begin", **body, "files": ["none"]})
    with pytest.raises(ConfigError, match="every server sees"):
        files.command({"op": "save_begin", "folder": str(tmp_path / "none"), "stem": "t"})
    small = cell(max_rows=4)
    with pytest.raises(ConfigError, match="more rows than the 4"):
        load(tmp_path, small)


@pytest.mark.parametrize(
    "body", [{}, {"op": "eat"}, {"op": "save_begin"}, {"op": "load_begin", "folder": 3}]
)
def test_other_bodies_are_refused(body):
    with pytest.raises(ConfigError, match="table"):
        TableFiles(cell()).command(body)


def test_an_end_without_a_beginning_is_refused():
    for op in ("save_rows", "save_end", "load_rows", "load_end"):
        with pytest.raises(StateError, match="begun"):
            TableFiles(cell()).command({"op": op, "begin": 0, "end": 1, "part": 0})
