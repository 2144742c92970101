import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.node.tables.index import RowIndex, deal
from bireme.placement.rows import home

BATCHES = st.lists(
    st.lists(st.integers(-20, 20) | st.integers(-(2**63), 2**63 - 1), max_size=30), max_size=8
)


@given(BATCHES)
def test_an_index_is_a_dictionary_of_positions(batches):
    index, model = RowIndex(), {}
    for batch in batches:
        rows = np.array(batch, np.int64)
        assert index.find(rows).tolist() == [model.get(row, -1) for row in batch]
        places = index.add(rows)
        for row in batch:
            model.setdefault(row, len(model))
        assert places.tolist() == [model[row] for row in batch]
    assert len(index) == len(model)
    assert index.ids.tolist() == list(model)


def test_what_is_kept_is_found_where_it_was_put_and_the_rest_is_gone():
    index = RowIndex()
    index.add(np.arange(1000))
    index.keep(np.arange(500, 600)[::-1])
    assert index.find(np.array([599, 500, 499, 0])).tolist() == [0, 99, -1, -1]
    assert index.add(np.array([0, 599])).tolist() == [100, 0]


def test_memory_is_in_proportion_to_the_ids():
    index = RowIndex()
    for begin in range(0, 300_000, 1000):
        index.add(np.arange(begin, begin + 1000) * 2**40)
    assert index.nbytes < 30 * 300_000


def test_a_deal_merges_duplicates_and_keeps_every_server_s_rows_together():
    rows = np.array([4, 4, -9, 7, 4, 7])
    parts = deal(rows, 3)
    assert parts.ids[parts.inverse].tolist() == rows.tolist()
    assert sorted(parts.ids.tolist()) == [-9, 4, 7]
    for server, begin, end in parts.spans():
        assert all(home(row, 3) == server for row in parts.ids[begin:end].tolist())


def test_nothing_can_be_dealt_too():
    parts = deal(np.empty(0, np.int64), 2)
    assert (len(parts.ids), parts.spans()) == (0, [(0, 0, 0), (1, 0, 0)])
