"""A child is heard to its last word, and takes its own children along."""

import os
import select
import signal
import sys

import pytest
from tests.launch.processes import is_gone, wait_until_gone

from bireme.errors import ConfigError
from bireme.launch.child import Child
from bireme.launch.exits import Exit


@pytest.fixture
def start():
    children = []

    def begin(code, **options):
        lines = []
        command = code if isinstance(code, tuple) else (sys.executable, "-u", "-S", "-c", code)

        def keep(found, is_error):
            lines.extend((line, is_error) for line in found)

        child = Child(command, dict(os.environ), keep, register=lambda: None, **options)
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


def test_signals_reach_the_whole_group(start):
    child, lines = start(("sh", "-c", "sleep 60 & echo $!; wait"))
    while not lines:
        select.select([child.fds[0]], [], [], 10)
        child.read(child.fds[0])
    grandchild = int(lines[0][0])
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
    with pytest.raises(ConfigError, match="cannot run"):
        Child((str(tmp_path),), {}, lambda *_: None, register=lambda: None)


def test_where_it_starts(start, tmp_path):
    child, lines = start(("pwd",), workdir=str(tmp_path))
    finish(child)
    assert lines == [(str(tmp_path), False)]
