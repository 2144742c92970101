"""A job whose rank 1 ends with an exit code while the others wait; or which goes on for ever."""

import os
import sys
import time


def main():
    rank = int(os.environ["RANK"])
    sys.stdout.write(f"rank {rank} on {os.uname().nodename}\n")
    sys.stdout.flush()
    if rank == 1 and sys.argv[1].isdecimal():
        sys.exit(int(sys.argv[1]))
    time.sleep(600)


if __name__ == "__main__":
    main()
