import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.node.tables.initial import first_rows, philox
from bireme.types.choices import Initialiser
from bireme.types.dtypes import DType
from bireme.wire.tables import TableSpec

WORD = st.integers(0, 2**63 - 1)


@given(st.integers(1, 2**32), st.integers(-(2**63), 2**63 - 1), WORD, WORD)
def test_the_generator_is_philox(block, row, seed, stream):
    # numpy counts up before it draws.
    counter = np.array([block - 1, row % 2**64, 0, 0], np.uint64)
    peer = np.random.Philox(counter=counter, key=np.array([seed, stream], np.uint64))
    assert philox(block, row, seed, stream) == tuple(peer.random_raw(4).tolist())


@pytest.mark.parametrize("kind", Initialiser)
@pytest.mark.parametrize("dim", [1, 4, 7])
def test_a_row_does_not_depend_on_those_beside_it(kind, dim):
    spec = TableSpec(dim=dim, initialiser=kind, seed=5, dtype=DType.FLOAT64)
    ids = np.array([7, -3, 10**18, 0])
    together = first_rows(spec, ids)
    for number, row in enumerate(ids):
        assert first_rows(spec, np.array([row])).tolist() == [together[number].tolist()]
    assert first_rows(spec, ids[::-1].copy()).tolist() == together[::-1].tolist()


def test_normal_rows_are_normal():
    rows = first_rows(TableSpec(dim=50, scale=0.1, dtype=DType.FLOAT64), np.arange(4000))
    assert abs(rows.mean()) < 0.001
    assert abs(rows.std() - 0.1) < 0.001
    assert abs((np.abs(rows) < 0.1).mean() - 0.6827) < 0.005
    assert abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) < 0.06


def test_uniform_rows_are_uniform():
    spec = TableSpec(dim=50, initialiser=Initialiser.UNIFORM, scale=2.0, dtype=DType.FLOAT64)
    rows = first_rows(spec, np.arange(4000))
    assert -2 <= rows.min() < -1.99
    assert 1.99 < rows.max() < 2
    assert abs((rows < -1).mean() - 0.25) < 0.005


def test_seed_and_stream_set_tables_apart():
    ids = np.arange(3)
    specs = [TableSpec(dim=3), TableSpec(dim=3, seed=1), TableSpec(dim=3, stream=1)]
    assert len({first_rows(spec, ids).tobytes() for spec in specs}) == 3


def test_bits_are_fixed_for_all_time():
    spec = TableSpec(dim=3, initialiser=Initialiser.UNIFORM, seed=1, stream=2, dtype=DType.FLOAT64)
    assert first_rows(spec, np.array([42])).tolist() == [ROW_42]


ROW_42 = [0.6013074432073986, -0.9027841015655815, 0.38151004849545944]


def test_zeros_are_zeros():
    spec = TableSpec(dim=3, initialiser=Initialiser.ZEROS)
    assert not first_rows(spec, np.arange(4)).any()
    assert not first_rows(TableSpec(dim=3, scale=0.0), np.arange(4)).any()
