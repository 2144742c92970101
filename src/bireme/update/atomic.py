"""Replaces a file as a whole. Whatever writes optimizer states calls it."""

import os
import secrets
from contextlib import suppress

__all__ = ("TEMPORARY", "write")

TEMPORARY = ".states-{token}.tmp"
"""What a file is called while it is written; only a process that was killed leaves one behind."""


def write(path: str, content: bytes) -> None:
    """Make ``path`` hold ``content``; a reader sees the old file or the whole new one.

    Raises:
        OSError: The file cannot be written. The old one is as it was.
    """
    folder = os.path.dirname(os.path.abspath(path))
    # Neither tempfile nor safetensors makes the file: nobody else could read what they make.
    temporary = os.path.join(folder, TEMPORARY.format(token=secrets.token_hex(8)))
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
