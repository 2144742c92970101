"""How a process is about to end, asked in processes that end in every way."""

import subprocess
import sys

import pytest

from bireme.kvstore.dist import exits
from bireme.kvstore.dist.exits import ExitWatch

SCRIPT = """
import atexit, runpy, sys, threading
# The module alone: its package takes seconds to import.
watch = runpy.run_path(sys.argv[1])["ExitWatch"]()
atexit.register(lambda: sys.stdout.write(watch.failure()))

def caught():
    try:
        sys.exit(3)
    except SystemExit:
        pass

def in_a_thread():
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()

def run(way):
"""

WAYS = {
    "pass": ("", 0),
    "sys.exit()": ("", 0),
    "sys.exit(0)": ("", 0),
    "sys.exit(256)": ("", 0),
    "sys.exit(3)": ("it ended with exit code 3", 3),
    "sys.exit(-1)": ("it ended with exit code 255", 255),
    "sys.exit('no such file')": ("it ended with exit code 1", 1),
    "raise ValueError('bad sample')": ("ValueError: bad sample", 1),
    "caught()": ("", 0),
    "caught(); sys.exit(0)": ("", 0),
    "in_a_thread()": ("", 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_failures_are_told_from_good_ends(way):
    script = f"{SCRIPT}    {way}\n\nrun({way!r})\n"
    ended = subprocess.run(
        [sys.executable, "-c", script, exits.__file__], capture_output=True, text=True
    )
    assert (ended.stdout, ended.returncode) == WAYS[way]


def test_several_watches_stop_in_any_order():
    before = sys.exit
    first, second = ExitWatch(), ExitWatch()
    with pytest.raises(SystemExit, match="7"):
        sys.exit(7)
    assert first.failure() == second.failure() == "it ended with exit code 7"
    first.stop()
    second.stop()
    with pytest.raises(SystemExit, match="8"):
        sys.exit(8)
    sys.exit = before
