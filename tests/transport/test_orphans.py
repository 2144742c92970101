"""Blocks whose reader may live on are kept until it has ended."""

import os
import subprocess
import sys
import time

from bireme.transport.arena import Arena
from bireme.transport.loop import Loop
from bireme.transport.orphans import Orphans


def test_blocks_come_back_when_the_process_has_ended() -> None:
    loop, arena = Loop(), Arena(1 << 24)
    orphans = Orphans(loop, arena)
    blocks = [arena.take(4096), arena.take(4096)]
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        orphans.keep(child.pid, [blocks[0]])  # type: ignore[list-item]
        loop.step(0)
        loop.step(0)
        assert arena.used_bytes == 8192
        child.kill()
        deadline_s = time.monotonic() + 20
        while arena.used_bytes != 4096:
            assert time.monotonic() < deadline_s
            loop.step(0.1)
    orphans.keep(child.pid, [blocks[1]])  # type: ignore[list-item]
    loop.step(0)
    assert arena.used_bytes == 0
    orphans.close()
    loop.close()
    arena.close()


def test_blocks_of_a_process_that_cannot_be_seen_are_kept() -> None:
    loop, arena = Loop(), Arena(1 << 24)
    orphans = Orphans(loop, arena)
    num_files = len(os.listdir("/proc/self/fd"))
    orphans.keep(0, [arena.take(4096)])  # type: ignore[list-item]
    orphans.keep(os.getpid(), [arena.take(4096)])  # type: ignore[list-item]
    loop.step(0)
    assert arena.used_bytes == 8192
    orphans.close()
    arena.close()
    assert len(os.listdir("/proc/self/fd")) < num_files + 2
    loop.close()
