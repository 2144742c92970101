"""A child is heard to its last word, and takes its own children along."""

import os
import select
import signal
import sys

import pytest
from tests.launch.processes import is_gone, wait_until_gone

from bireme.errors import ConfigError
from bireme.launch.child import TAIL_LINES, Child
from bireme.launch.exits import Exit
from bireme.launch.job import ProcessPlan
from bireme.types import worker


@pytest.fixture
def start():
    children = []

    def begin(code, **options):
        lines = []
        command = code if isinstance(code, tuple) else (sys.executable, "-u", "-S", "-c", code)
        plan = ProcessPlan(node=worker(0), command=command, env=dict(os.environ))
        child = Child(plan, lambda *each: lines.append(each), register=lambda: None, **options)
        children.append(child)
        return child, lines

    yield begin
    for child in children:
        child.signal(signal.SIGKILL)


def finish(child):
    """Wait for the end as the launcher does, and return it."""
    assert child.exit_fd is not None
    assert select.select([child.exit_fd], [], [], 10)[0]
    exit_ = child.poll()
    child.close()
    return exit_


def test_lines_of_both_streams(start):
    child, lines = start("import sys; print('out'); print('err', file=sys.stderr); sys.exit(4)")
    assert finish(child) == Exit(4)
    assert sorted(lines) == [("err", True), ("out", False)]


def test_a_last_line_without_an_end(start):
    child, lines = start("print('x', end='')")
    assert finish(child) == Exit(0)
    assert lines == [("x", False)]


def test_the_tail_is_short_and_the_log_is_whole(start, tmp_path):
    log = (tmp_path / "log").open("wb", buffering=0)
    child, lines = start("for i in range(100): print(i)", log=log)
    finish(child)
    assert list(child.tail) == [str(i) for i in range(100 - TAIL_LINES, 100)]
    assert len(lines) == 100
    assert (tmp_path / "log").read_bytes() == b"".join(b"%d\n" % i for i in range(100))
    assert log.closed


def test_a_full_disk_ends_the_log_and_not_the_job(start):
    child, lines = start("print('x')", log=open("/dev/full", "wb", buffering=0))
    assert finish(child) == Exit(0)
    assert ("x", False) in lines
    assert any("not kept any longer" in text for text, _ in lines)


def test_signals_reach_the_whole_group(start):
    child, _ = start(("sh", "-c", "sleep 60 & echo $!; wait"))
    while not child.tail:
        select.select([child.fds[0]], [], [], 10)
        child.read(child.fds[0])
    grandchild = int(child.tail[0])
    assert child.poll() is None
    child.signal(signal.SIGTERM)
    assert finish(child) == Exit(-15)
    wait_until_gone([grandchild])


def test_what_a_child_leaves_behind_is_ended(start):
    child, lines = start(("sh", "-c", "sleep 60 & echo $!"))
    assert finish(child) == Exit(0)
    wait_until_gone([int(lines[0][0])])


def test_a_pipe_that_stays_open_is_no_reason_to_wait(start):
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    print(os.getpid())\n"
        "    time.sleep(60)\n"
        "os.read(0, 1)\n"
    )
    child, lines = start(code)
    while not lines:
        select.select([child.fds[0]], [], [], 10)
        child.read(child.fds[0])
    escaped = int(lines[0][0])
    try:
        assert finish(child) == Exit(0)
        assert not is_gone(escaped)
    finally:
        os.kill(escaped, signal.SIGKILL)


def test_a_command_that_cannot_run(tmp_path):
    plan = ProcessPlan(node=worker(0), command=(str(tmp_path),), env={})
    with pytest.raises(ConfigError, match="cannot run"):
        Child(plan, lambda *_: None, register=lambda: None)
