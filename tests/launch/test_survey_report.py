from dataclasses import replace

import pytest

from bireme.launch.survey_report import Finding, Reached, Reference, is_well, routes, survey_table

MINE = Reference(python="3.11.7", packages={"torch": "2.13.0+cpu", "numba": ""}, folder="/work")
A = Finding(
    host="a",
    python="3.11.9",
    executable="/opt/python",
    packages={"torch": "2.13.0+cpu", "numba": "0.60"},
    reached=(Reached(host="b", source="10.0.0.1 (eth0)", target="10.0.0.2"),),
)
B = replace(A, host="long-name", reached=())

DEFECTS = {
    "its trouble": (
        {"trouble": "connection refused; start sshd there"},
        "reachable",
        "connection refused; start sshd there",
    ),
    "python": ({"python": "3.12.1"}, "python", "/opt/python is Python 3.12.1, here it is 3.11.7;"),
    "other package": (
        {"packages": {"torch": "2.6.0"}},
        "packages",
        "has torch 2.6.0, here it is 2.13.0+cpu; "
        "run there: /opt/python -m pip install torch==2.13.0",
    ),
    "no package": ({"packages": {}}, "packages", "has no torch, here it is 2.13.0+cpu"),
    "folder": ({"has_folder": False}, "folder", "has no folder /work; copy it there"),
    "fast": ({"skew_s": 31.2}, "clock", "its clock is 31.2 s ahead; set it"),
    "slow": ({"skew_s": -2.0, "doubt_s": 0.5}, "clock", "its clock is 2.0 s behind"),
    "port": ({"port_error": "too many open files"}, "port", "cannot listen on a port: too many"),
    "firewall": (
        {"reached": (Reached(host="b", error="b: timed out"),)},
        "network",
        "cannot reach b (b: timed out); let all ports above 1024 through the firewall",
    ),
    "name": (
        {"reached": (Reached(host="b", error="b: Name or service not known"),)},
        "network",
        "add the name to /etc/hosts",
    ),
    "another": (
        {"reached": (Reached(host="b", error="b: 127.0.0.1 is another host"),)},
        "network",
        "correct what the name stands for there, in /etc/hosts",
    ),
    "address": (
        {"reached": (Reached(host="b", error="b: timed out", source="x", target="10.0.0.2"),)},
        "network",
        "but 10.0.0.2 works; correct what the name stands for",
    ),
}


def test_hosts_that_are_well():
    assert survey_table(MINE, [A, B], tick="ok", cross="NO") == [
        "host       reachable  python     packages  folder  clock      port  network",
        "a          ok         ok 3.11.9  ok        ok      ok +0.0 s  ok    ok 10.0.0.1 (eth0)",
        "long-name  ok         ok 3.11.9  ok        ok      ok +0.0 s  ok    ok",
    ]
    assert is_well(MINE, [A, B])
    assert routes([A, B]) == ["a -> b: from 10.0.0.1 (eth0) to 10.0.0.2"]


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_has_its_cross_and_its_remedy(name):
    changes, column, remedy = DEFECTS[name]
    finding = replace(A, **changes)
    header, row, title, what, *more = survey_table(MINE, [finding], tick="ok", cross="NO")
    assert row[header.index(column) :].startswith("NO")
    assert row.count("NO") == 1
    assert (title, more) == ("what to do:", [])
    assert what.startswith("  a: ")
    assert remedy in what
    assert not is_well(MINE, [A, finding])


def test_a_slow_answer_says_nothing_of_the_clock():
    assert is_well(MINE, [replace(A, skew_s=3.0, doubt_s=2.5)])


def test_what_is_not_installed_here_may_be_missing_there():
    assert is_well(MINE, [replace(A, packages={"torch": "2.13.0+cpu"})])
