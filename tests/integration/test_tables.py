"""Tables in real processes: as exact as in one, memory for touched rows, files of any job."""

import json

import pytest
from tests.integration.jobs import launch, run_job
from tests.integration.programs.tables import DECLARED, DIM, TOUCHED

pytestmark = pytest.mark.slow

_FIXED_BYTES = 28 << 20
_ROW_BYTES = 2 * 4 * DIM + 4 * 8 + 16
"""Values, sums of squares, id, step, count, round, and cells of the index."""


@pytest.mark.timeout(200)
def test_a_declared_table_takes_memory_for_the_rows_that_are_touched(tmp_path):
    found = run_job("tables", tmp_path, num_workers=2, num_servers=1, bireme_transport="tcp")
    assert {text for each in found for text in each.values()} == {""}
    added = json.loads((tmp_path / "memory-0.json").read_text())
    assert added["rows"] == TOUCHED
    assert added["bytes"] < 1.5 * TOUCHED * _ROW_BYTES
    assert added["server"] < 1.5 * TOUCHED * _ROW_BYTES + _FIXED_BYTES
    assert added["server"] < 0.02 * DECLARED * 4 * DIM


@pytest.mark.timeout(200)
def test_rows_are_spread_evenly_over_servers(tmp_path):
    found = run_job("tables", tmp_path, num_workers=3, num_servers=3)
    assert {text for each in found for text in each.values()} == {""}
    added = json.loads((tmp_path / "memory-0.json").read_text())
    share = TOUCHED / 3
    assert all(0.97 * share < each["rows"] < 1.03 * share for each in added["servers"])


@pytest.mark.timeout(200)
def test_a_table_goes_on_in_another_job(tmp_path):
    for what, num_workers, num_servers in (("save", 2, 2), ("load", 2, 3)):
        launch("table_files", tmp_path, what, num_workers=num_workers, num_servers=num_servers)
        for rank in range(num_workers):
            found = json.loads((tmp_path / f"{rank}.json").read_text())
            assert found == {"it_goes_on": ""}
