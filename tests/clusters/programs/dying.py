"""A job whose rank 1 ends with exit code 3 while the others wait."""

import os
import sys
import time


def main():
    rank = int(os.environ["RANK"])
    sys.stdout.write(f"rank {rank} on {os.uname().nodename}\n")
    sys.stdout.flush()
    if rank == 1:
        sys.exit("no more of this" if len(sys.argv) < 2 else int(sys.argv[1]))
    time.sleep(600)


if __name__ == "__main__":
    main()
