"""The machine is examined by doing, and what does not work is said."""

import pytest

from bireme.launch import checkup
from bireme.launch.checkup import TRANSPORTS, facts, try_transport


@pytest.mark.parametrize("name", TRANSPORTS)
def test_every_transport_works_here(name):
    assert try_transport(name) == "works"


def test_one_that_does_not_work_says_why(monkeypatch):
    monkeypatch.setattr(checkup, "TRANSPORTS", {"tcp": "tcp://192.0.2.77:0"})
    assert try_transport("tcp").startswith("does not work: ")


def test_facts():
    found = facts({"OMP_NUM_THREADS": "3"})
    assert found["threads"] == "OMP_NUM_THREADS=3"
    assert "127.0.0.1" in found["addresses"]
    assert found["torch"][0].isdigit()
    assert 0 < int(found["port"].split()[0]) < 65536


@pytest.mark.parametrize("package", ["torch", "no-such-package"])
def test_package_version(package):
    version = checkup._package_version(package)
    assert version.startswith("not installed") == (package == "no-such-package")
