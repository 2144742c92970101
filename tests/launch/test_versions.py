"""Hosts that differ from this machine are told in a few lines, with what to do."""

from bireme.launch.versions import differences, versions
from bireme.version import __version__

HERE = {"bireme": "1", "torch": "2.3.0+cu121", "numpy": "2.0.0"}


def told(hosts):
    return list(differences(hosts, "3.11.7", HERE))


def test_what_is_installed_here():
    assert versions()["bireme"] == __version__
    assert "msgspec" in versions()
    assert list(differences({"leda": ("3.11.0", versions())}, "3.11.7")) == []


def test_builds_and_patches_are_no_difference():
    assert told({"leda": ("3.11.2", {**HERE, "torch": "2.3.0+cpu"})}) == []


def test_another_version_and_none():
    assert told({"leda": ("3.11.7", {"bireme": "1", "torch": "2.2.0"})}) == [
        "leda has no numpy, and 2.0.0 is here; install the same there",
        "leda has torch 2.2.0, and 2.3.0+cu121 is here; install the same there",
    ]


def test_many_hosts_are_one_line():
    hosts = {f"h{i}": ("3.12.0", HERE) for i in range(2000)}
    assert told(hosts) == [
        "h0, h1, h2, h3 and 1996 more have Python 3.12.0, and 3.11.7 is here; name the same by "
        "--ssh-python"
    ]


def test_a_host_that_has_not_said():
    assert told({"leda": ("3.11.7", {})}) == []
