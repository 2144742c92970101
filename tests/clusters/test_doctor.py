"""``bireme doctor --hosts`` over a real sshd."""

import sys

import pytest
from tests.clusters.jobs import ENV

pytestmark = pytest.mark.timeout(240)
DOCTOR = [sys.executable, "-m", "bireme", "doctor", "--hosts"]


def test_hosts_that_are_well_and_ways_between_them(hosts):
    with hosts.nothing_left():
        ended = hosts.run([*DOCTOR, "node-a,node-b"], env=ENV)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "node-a -> node-b: from 10.77.0.2 (eth0) to 10.77.0.3" in ended.stdout
    assert "node-b -> node-a: from 10.77.0.3 (eth0) to 10.77.0.2" in ended.stdout


def test_each_cross_says_what_to_do(hosts):
    ended = hosts.run([*DOCTOR, "node-a,no-such-host,10.77.0.99"], env=ENV, folder="/dev/shm")
    assert ended.returncode == 1
    assert "no-such-host: no such host" in ended.stdout
    assert "10.77.0.99: " in ended.stdout


def test_a_host_without_the_interpreter(hosts):
    ended = hosts.run([*DOCTOR, "node-a", "--ssh-python", "/no/python"], env=ENV)
    assert ended.returncode == 1
    assert "name its Python by --ssh-python" in ended.stdout
