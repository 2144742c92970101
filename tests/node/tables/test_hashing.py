import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.node.tables import hashing
from bireme.placement.rows import home

IDS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50)


@given(IDS, st.integers(1, 9))
def test_homes_are_those_of_the_reference(ids, num_servers):
    rows = np.array(ids, np.int64)
    out = np.empty(len(rows), np.int64)
    hashing.homes(rows, num_servers, out)
    assert out.tolist() == [home(row, num_servers) for row in ids]


@given(st.lists(st.integers(-4, 4), max_size=12))
def test_a_full_half_of_the_cells_is_enough(ids):
    rows, cells = np.array(ids, np.int64), np.full(32, -1, np.int32)
    known, out = np.empty(16, np.int64), np.empty(len(ids), np.int64)
    count = hashing.find_or_add(rows, known, 0, cells, out)
    assert known[out].tolist() == ids
    assert known[:count].tolist() == list(dict.fromkeys(ids))
    again = np.full_like(cells, 7)
    hashing.fill_cells(known, count, again)
    found = np.empty(len(ids), np.int64)
    assert hashing.find(rows, known, again, found) == 0
    assert found.tolist() == out.tolist()


@given(st.lists(st.integers(), max_size=30, unique=True), st.integers(1, 5))
def test_dealt_rows_are_by_server_and_in_order(numbers, num_servers):
    rows = np.array([number % 2**62 for number in numbers], np.int64)
    rows = np.unique(rows)
    dealt, places = np.empty_like(rows), np.empty_like(rows)
    ends = np.zeros(num_servers, np.int64)
    hashing.deal(rows, len(rows), num_servers, dealt, places, ends)
    assert dealt[places].tolist() == rows.tolist()
    expected = [
        [row for row in rows.tolist() if home(row, num_servers) == server]
        for server in range(num_servers)
    ]
    assert [part.tolist() for part in np.split(dealt, ends[:-1])] == expected
