"""Stores of bounded staleness between real processes: three workers, two servers."""

import pytest
from tests.integration.jobs import run_job
from tests.integration.programs.bounded import check

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("bounded")
    return run_job("bounded", out, num_workers=3, num_servers=2, bireme_staleness="3")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", check.names())
def test_every_worker_finds(found, name):
    assert [each[name] for each in found] == ["", "", ""]
