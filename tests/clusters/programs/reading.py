"""A job that reads a file of the folder that it starts in."""

import os
import sys
from pathlib import Path


def main():
    word = Path("word").read_text()
    sys.stdout.write(f"{word} on {os.uname().nodename} in {Path.cwd()}\n")


if __name__ == "__main__":
    main()
