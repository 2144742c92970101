import sys

import pytest

from bireme.launch.survey import Visit, survey
from bireme.launch.survey_report import Reference

MINE = Reference(python="3", packages={"pytest": "x"}, folder="/")
WAYS = {
    "good": lambda command: command,
    "refuses": lambda _: [sys.executable, "-c", "import sys; sys.exit('no entry')"],
    "hangs": lambda _: [sys.executable, "-c", "import time; time.sleep(60)"],
    "babbles": lambda _: [sys.executable, "-c", "print('Welcome!')"],
}


def explain(code, printed):
    return f"code {code}: {' '.join(printed)}"


def explain_of(_host):
    return explain


def visit(*kinds, limit_s=40.0):
    names = {f"{kind}-{number}": kind for number, kind in enumerate(kinds)}

    def way(host, command):
        return WAYS[names[host]](command)

    return survey(list(names), MINE, way, explain_of, python=sys.executable, limit_s=limit_s)


def test_hosts_are_asked_and_reach_each_other(monkeypatch):
    first, second, third = visit("good", "good", "good")
    assert [first.host, second.host, third.host] == ["good-0", "good-1", "good-2"]
    assert first.executable == sys.executable
    assert first.has_folder
    assert first.packages["pytest"]
    assert abs(first.skew_s) < 1
    assert first.port_error == ""
    # The names are no names, so that another address was tried, or none was there.
    assert [way.host for way in first.reached] == ["good-1"]
    assert [way.host for way in second.reached] == ["good-0", "good-2"]
    assert [way.host for way in third.reached] == ["good-0"]
    assert all(way.error.startswith(way.host) for way in second.reached)


def test_one_host_alone_reaches_nobody():
    assert visit("good")[0].reached == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        ("refuses", "code 1: no entry"),
        ("hangs", "no answer within 9 s"),
        ("babbles", "it answers with something else"),
    ],
)
def test_hosts_that_do_not_answer_stop_nobody(kind, trouble):
    good, bad, other = visit("good", kind, "good", limit_s=9.0 if kind == "hangs" else 40.0)
    assert bad.trouble.startswith(trouble)
    assert good.trouble == other.trouble == ""
    assert [way.host for way in good.reached] == ["good-2"]


def test_a_visit_leaves_nothing_behind():
    visit_ = Visit(WAYS["hangs"](()), 0.1, explain)
    process = visit_._process
    visit_.close()
    assert process.poll() is not None
