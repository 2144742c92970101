"""Synchronous stores between real processes: three workers, two servers."""

import pytest
from tests.integration.jobs import run_job
from tests.integration.programs.rounds import check

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_job("rounds", tmp_path_factory.mktemp("rounds"), num_workers=3, num_servers=2)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", check.names())
def test_every_worker_finds(found, name):
    assert [each[name] for each in found] == ["", "", ""]
