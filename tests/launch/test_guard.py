"""The guard ends what a dead launcher left behind, and nothing else."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bireme.launch import guard


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (b"", set()),
        (b"+1\n+22\n", {1, 22}),
        (b"+1\n+22\n-1\n", {22}),
        (b"+1\n+22", {1}),
        (b"+1\nnoise\n\n-\n-7\n", {1}),
    ],
)
def test_following(text, groups):
    assert guard.follow(io.BytesIO(text)) == (groups, set())


def test_marks_are_followed_too():
    mark = frozenset([b"BIREME_JOB=a\nb", b"BIREME_RANK=0"])
    text = guard.mark_line(mark) + b"=zz\n=\n=414d\n+7\n" + guard.mark_line(mark)
    assert guard.follow(io.BytesIO(text + guard.mark_line(mark)[:-1])) == ({7}, {mark})


def sleeper(**variables):
    return subprocess.Popen(["sleep", "60"], env={**variables, "MORE": "1"})


def test_who_has_a_mark_is_found_and_ended():
    name = f"job-{os.getpid()}"
    mark = frozenset([b"BIREME_JOB=" + name.encode(), b"BIREME_RANK=0"])
    with sleeper(BIREME_JOB=name, BIREME_RANK="0") as mine:
        with sleeper(BIREME_JOB=name, BIREME_RANK="00") as other:
            while not guard.marked([mark]):
                time.sleep(0.005)
            assert guard.marked([mark]) == {mine.pid}
            guard.end_marked([mark])
            assert mine.wait(10) == -signal.SIGKILL
            assert other.poll() is None
            other.kill()
    assert guard.marked([]) == guard.marked([mark]) == set()
    assert guard.marked([mark], "/no/proc") == set()


def test_those_that_end_are_not_killed():
    alive, sent = {5, 6}, []

    def kill(group, signum):
        if group not in alive:
            raise ProcessLookupError
        sent.append((group, signum))
        if group == 5 and signum == signal.SIGTERM:
            alive.discard(5)

    waits = []
    guard.end_groups([4, 5, 6], kill=kill, sleep=waits.append)
    assert [each for each in sent if each[1]] == [
        (5, signal.SIGTERM),
        (6, signal.SIGTERM),
        (6, signal.SIGKILL),
    ]
    assert 1.9 < sum(waits) < 2.1


@pytest.mark.slow
def test_it_ends_real_processes_when_its_pipe_closes():
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1); time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", stubborn], stdout=subprocess.PIPE, start_new_session=True
    )
    with child:
        assert child.stdout.readline() == b"1\n"
        with subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            process.stdin.write(b"+%d\n" % child.pid)
            process.stdin.flush()
            while not ignores(process.pid, signal.SIGTERM):
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGTERM)
            assert child.poll() is None
            process.stdin.close()
            assert process.wait(10) == 0
        assert child.wait(10) == -signal.SIGKILL


def ignores(pid, signum):
    mask = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1]
    return bool(int(mask, 16) >> (signum - 1) & 1)


def test_it_imports_only_the_standard_library():
    code = f"import sys, runpy; runpy.run_path({guard.__file__!r}); print('bireme' in sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)
    assert run.stdout == b"False\n"
