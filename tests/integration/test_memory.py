"""What a store costs in memory, measured in real processes: two workers, one server or two."""

import json

import pytest
from tests.integration.jobs import run_job
from tests.integration.programs.memory import SIZE_BYTES

pytestmark = pytest.mark.slow

_FIXED_BYTES = 12 << 20
"""Buffers of sockets, and payloads under way. A whole copy of the gradients would be 64 MB."""


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    out = tmp_path_factory.mktemp("memory")
    # Over sockets no page belongs to two processes, so that each counts its own.
    found = run_job("memory", out, num_workers=2, num_servers=1, bireme_transport="tcp")
    assert [each["memory"] for each in found] == ["", ""]
    return [json.loads((out / f"memory-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.timeout(200)
def test_a_server_holds_about_twice_the_values(added):
    assert SIZE_BYTES < added[0]["server"] < 2.2 * SIZE_BYTES


@pytest.mark.timeout(200)
def test_pushpull_needs_no_copy_of_the_gradients(added):
    assert all(each["pushpull"] < 0.1 * SIZE_BYTES + _FIXED_BYTES for each in added)


@pytest.mark.timeout(200)
def test_push_needs_one_copy_of_the_gradients(added):
    assert all(each["push"] < 1.1 * SIZE_BYTES + _FIXED_BYTES for each in added)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("num_servers", [1, 2])
def test_servers_of_many_keys_hold_about_twice_the_values(tmp_path, num_servers):
    found = run_job(
        "server_memory", tmp_path, num_workers=2, num_servers=num_servers, bireme_transport="tcp"
    )
    assert [each["server_memory"] for each in found] == ["", ""]
    for rank in range(2):
        held = json.loads((tmp_path / f"held-{rank}.json").read_text())
        assert len(held["most"]) == num_servers
        for value_bytes, most_bytes in zip(held["values"], held["most"], strict=True):
            assert value_bytes < most_bytes < 2.2 * value_bytes
