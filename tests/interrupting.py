"""Programs that Ctrl-C strikes a thousand times, and what must hold whenever it comes."""

import signal
import subprocess
import sys
import time
from textwrap import indent

LIMIT_S = 40.0

_PROGRAM = """
import signal, sys, threading

is_armed = False

def interrupt(*_):
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
{setup}
sys.stdout.write("ready\\n")
sys.stdout.flush()
num_interrupts = 0
while num_interrupts < 1000:
    target = len(made) + 1
    try:
        is_armed = True
{struck}
        is_armed = False
    except KeyboardInterrupt:
        num_interrupts += 1
{unharmed}
{end}
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""


def storm(*, setup: str, struck: str, unharmed: str = "", end: str) -> None:
    """Run a program of these parts, and strike until it ends; it must end by itself and well.

    Args:
        setup: Makes the list ``made``, which grows, and what is struck.
        struck: Returns once ``made`` has ``target`` entries.
        unharmed: Asserts after each turn that nothing is half done.
        end: Stops what ``setup`` started, while strikes that nobody minds go on.
    """
    loop = " " * 4
    program = _PROGRAM.format(
        setup=setup, struck=indent(struck, 2 * loop), unharmed=indent(unharmed, loop), end=end
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        deadline_s = time.monotonic() + LIMIT_S
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            if time.monotonic() > deadline_s:
                process.kill()
        assert process.returncode == 0
