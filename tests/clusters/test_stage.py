"""The stage itself: hosts that know each other, and nothing left of them."""

import os

import pytest
from tests.clusters.conftest import _stage
from tests.clusters.stage import until


@pytest.fixture
def stage(tmp_path_factory):
    return _stage(tmp_path_factory, "ip")


def test_hosts_have_names_addresses_and_memory_of_their_own(stage):
    with stage:
        for host, address in stage.addresses.items():
            told = stage.run(["sh", "-c", "hostname; ip -4 -o addr; ls /dev/shm"], host=host)
            assert told.stdout.split()[0] == host
            assert f"{address}/24" in told.stdout
        stage.run(["touch", "/dev/shm/mine"], host="node-a", check=True)
        seen = stage.run(["ls", "/dev/shm"], host="node-b").stdout
    assert seen == ""


def test_what_is_left_is_seen(stage):
    with stage, pytest.raises(AssertionError, match="sleep 1234"), stage.nothing_left(0.2):
        stage.run(["sh", "-c", "sleep 1234 >/dev/null 2>&1 &"], check=True)


@pytest.mark.parametrize("by_force", [False, True])
def test_the_end_of_a_stage_ends_everything_in_it(stage, by_force):
    with stage, stage.start(["setsid", "sleep", "1234"], host="node-b") as sleeper:
        pid = sleeper.inner_pid
        assert os.path.exists(f"/proc/{pid}")
        if by_force:
            stage._init.kill()
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the sleeper is gone")


def test_two_stages_at_once(stage, tmp_path_factory):
    with stage, _stage(tmp_path_factory, "ip") as other:
        assert stage.processes() == other.processes() == {}
