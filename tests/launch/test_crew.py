"""A crew's processes are heard to the end, may have to wait, and never stay behind."""

import os
import selectors
import sys
import time

import pytest
from tests.launch.processes import is_gone, wait_until_gone

from bireme.launch.crew import Crew, guarded
from bireme.launch.exits import Exit
from bireme.launch.turn import turn
from bireme.types import worker

PYTHON = (sys.executable, "-S", "-u", "-c")


@pytest.fixture
def crew():
    heard = []
    with guarded() as guard_fd, selectors.DefaultSelector() as selector:
        made = Crew(selector, guard_fd, lambda *each: heard.append(each))
        made.heard = heard
        made.selector = selector
        yield made
        made.close()


def until(crew, ready, limit_s=20):
    ended = []
    deadline_s = time.monotonic() + limit_s
    while not ready(ended):
        assert time.monotonic() < deadline_s
        turn(crew.selector, 0.1)
        ended += crew.reap()
    return ended


def start(crew, rank, code):
    crew.start(worker(rank), (*PYTHON, code), dict(os.environ))


def test_lines_come_before_the_end(crew):
    start(crew, 0, "print('a'); import sys; sys.exit(3)")
    ended = until(crew, bool)
    assert ended == [(worker(0), Exit(3))]
    assert crew.heard == [(worker(0), ["a"], False)]
    assert crew.nodes == []


def test_who_is_not_heard_waits(crew):
    start(crew, 0, "import sys\nfor i in range(40000): print(i)\nprint('end', file=sys.stderr)")
    crew.hear(False)
    for _ in range(5):
        turn(crew.selector, 0.05)
    assert crew.heard == []
    assert crew.nodes == [worker(0)]
    crew.hear(True)
    until(crew, bool)
    lines = [line for _, lines, is_error in crew.heard if not is_error for line in lines]
    assert lines == [str(i) for i in range(40000)]


def test_nobody_stays_behind(crew):
    start(crew, 0, "import os, time; print(os.getpid()); time.sleep(60)")
    until(crew, lambda _: crew.heard)
    pid = int(crew.heard[0][1][0])
    crew.signal(worker(5), 9)
    assert not is_gone(pid)
    crew.close()
    wait_until_gone([pid])
    assert set(crew.selector.get_map()) == set()
