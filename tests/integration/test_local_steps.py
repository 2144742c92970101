"""Local steps between three real workers, against a straight computation."""

import pytest
from tests.integration.jobs import run_job
from tests.integration.programs.local_steps import check

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_job("local_steps", tmp_path_factory.mktemp("local"), num_workers=3, num_servers=2)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", check.names())
def test_every_worker_finds(found, name):
    assert [each[name] for each in found] == ["", "", ""]
