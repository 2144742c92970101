"""The first process of a stage: starts one process for each host, reaps whatever ends, and ends.

    unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc python init.py HOST ...

A host is a process in namespaces of its own that does nothing: other processes enter them. Ends,
and with it every process of the stage, when its standard input does.
"""

import os
import subprocess
import sys
import threading

_ANCHOR = """
hostname "$1" && ip link set lo up || exit 1
for folder in /run /dev/shm; do mount -t tmpfs -o mode=1777 stage "$folder" || exit 1; done
echo "$1 $$"
exec sleep infinity >/dev/null
"""


def _reap():
    while True:
        os.wait()


def main(hosts):
    for host in hosts:
        anchor = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--ipc", "sh", "-c", _ANCHOR, "sh", host],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        sys.stdout.write(anchor.stdout.readline() or f"{host} failed\n")
        sys.stdout.flush()
    threading.Thread(target=_reap, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
