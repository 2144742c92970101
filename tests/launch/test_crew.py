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


ESCAPE = """
import os, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid())
        os.close(writing)
        time.sleep(60)
    os._exit(0)
os.close(writing)
os.read(reading, 1)
os.wait()
"""


@pytest.mark.parametrize("rest", ["", "time.sleep(60)"], ids=["it ends", "it is ended"])
def test_what_has_made_a_session_of_its_own_ends_with_its_process(crew, rest):
    env = {**os.environ, "BIREME_JOB": f"job-{os.getpid()}", "BIREME_ROLE": "worker"}
    for rank in (0, 1):
        more = {"BIREME_RANK": str(rank)}
        code = ESCAPE + (rest if rank == 0 else "time.sleep(60)")
        crew.start(worker(rank), (*PYTHON, code), {**env, **more})
    ended = until(crew, lambda _: len(crew.heard) == 2)
    escaped = {node: int(lines[0]) for node, lines, _ in crew.heard}
    if rest:
        crew.signal(worker(0), 9)
    ended += until(crew, lambda more: ended + more)
    assert [node for node, _ in ended] == [worker(0)]
    wait_until_gone([escaped[worker(0)]])
    assert not is_gone(escaped[worker(1)])
    crew.close()
    wait_until_gone(escaped.values())
