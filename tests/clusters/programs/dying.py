"""A job whose rank 1 ends with an exit code while the others wait; or which goes on for ever.

In the latter every rank starts a process and lets go of it, as daemons do.
"""

import os
import sys
import time

LET_GO = "601"
"""How long what is let go of sleeps, and how it is known."""


def main():
    rank = int(os.environ["RANK"])
    sys.stdout.write(f"rank {rank} on {os.uname().nodename}\n")
    sys.stdout.flush()
    if rank == 1 and sys.argv[1].isdecimal():
        sys.exit(int(sys.argv[1]))
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.execvp("sleep", ["sleep", LET_GO])
        os._exit(0)
    os.wait()
    # Its end closes when the other is what it is to be: until then it looks like this rank.
    os.close(writing)
    os.read(reading, 1)
    sys.stdout.write(f"rank {rank} has let go\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    main()
