"""Remote shells that only say what agents would, so that what a job costs is its launcher's."""

from bireme.launch.talk import MARK, Ended, Lines, Ready, frame
from bireme.types import worker
from bireme.version import __version__


def fake_hosts(folder, num_hosts, *, stays_open=False):
    """Return the options of a job with one worker on each of so many hosts.

    Each worker prints ``x`` and ends well.

    Args:
        folder: Where the shell and what it says are written.
        num_hosts: How many.
        stays_open: Keep the standard output open behind the last word, as real shells do.
    """
    ready = Ready(version=__version__, python="3", hostname="x", address="10.0.0.1")
    for rank in range(num_hosts):
        words = MARK + frame(ready) + frame(Lines(worker(rank), ["x"], False))
        (folder / f"node{rank}").write_bytes(words + frame(Ended(worker(rank), 0)))
    listen = "exec 3>&1\nexec cat >/dev/null" if stays_open else "cat >/dev/null"
    shell = folder / "shell"
    shell.write_text(f'#!/bin/sh\ncat {folder}/"$1"\n{listen}\n')
    shell.chmod(0o755)
    (folder / "hosts").write_text("".join(f"node{rank} slots=1\n" for rank in range(num_hosts)))
    return ("--hostfile", str(folder / "hosts"), "--ssh-program", str(shell))
