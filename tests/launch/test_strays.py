"""Whatever is below a process is found and ended, and what it let go of comes to who adopts."""

import subprocess
import sys

from tests.launch.processes import wait_until_gone

from bireme.launch import strays

# Starts a process that starts another and ends; goes on when the other has said its number.
LETS_GO = """
import os, sys, time
sys.path[:0] = {path}
from bireme.launch import strays
{before}
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), os.getppid(), flush=True)
        os.close(writing)
        time.sleep({sleep})
    os._exit(0)
os.close(writing)
os.read(reading, 1)
{after}
"""


def script(before="", after="", sleep=60):
    code = LETS_GO.format(path=sys.path, before=before, after=after, sleep=sleep)
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_below_a_process():
    with script(after="os.read(0, 1)") as process:
        pid, parent = map(int, process.stdout.readline().split())
        # Its parent may have ended, and nobody adopts.
        assert strays.descendants(process.pid) <= {pid, parent}
        process.stdin.close()
        subprocess.run(["kill", str(pid)], check=True)
    assert strays.descendants(process.pid) == set()


def test_what_is_adopted_is_ended():
    after = (
        "os.wait()\n"
        "mine = strays.descendants(os.getpid())\n"
        "print(*mine, flush=True)\n"
        "strays.end_descendants(os.getpid())\n"
        "print(len(strays.descendants(os.getpid())), flush=True)\n"
    )
    with script("assert strays.adopt()", after) as process:
        pid = int(process.stdout.readline().split()[0])
        assert process.stdout.read().split() == [str(pid), "0"]
    assert process.returncode == 0
    wait_until_gone([pid])


def test_ends_of_the_adopted_are_taken():
    after = (
        "child = os.wait()[0]\n"
        "own = os.fork()\n"
        "if own == 0: os._exit(0)\n"
        "os.waitid(os.P_PID, own, os.WEXITED | os.WNOWAIT)\n"
        "def children():\n"
        "    return [p for p, parent, _ in strays._processes() if parent == os.getpid()]\n"
        "while len(children()) > 1: strays.reap_adopted([own])\n"
        "print(children() == [own], flush=True)\n"
    )
    with script("strays.adopt()", after, sleep=0) as process:
        process.stdout.readline()
        assert process.stdout.read() == "True\n"
    assert process.wait() == 0


def test_who_adopts_is_asked_of_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not strays.adopt()
