"""Replaces a file as a whole. Whatever writes states and checkpoints calls it."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from bireme.errors import FileError

__all__ = ("TEMPORARY", "write")

TEMPORARY = ".states-{token}.tmp"
"""What a file is called while it is written; only a process that was killed leaves one behind."""


def write(path: str | os.PathLike[str], content: bytes | Callable[[IO[bytes]], object]) -> None:
    """Make ``path`` hold ``content``, or leave it as it was.

    Args:
        path: File to replace, in an existing folder.
        content: Its bytes; or what writes them to a binary file.

    Raises:
        FileError: The folder does not exist or cannot be written, the disk is full, or ``path``
            names no file.

    Guarantees:
        A reader sees the old file or the whole new one, also after a crash. The file has the
        permissions that ``open`` gives a new file.
    """
    name = os.fspath(path)
    if not os.path.basename(name) or os.path.isdir(name):
        raise FileError(f"cannot write {name!r}: it names no file; add a file name")
    folder = os.path.dirname(os.path.abspath(name))
    # Neither tempfile nor safetensors makes the file: nobody else could read what they make.
    temporary = os.path.join(folder, TEMPORARY.format(token=secrets.token_hex(8)))
    try:
        with open(temporary, "xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, FileError):
            raise FileError(f"cannot write {name!r}: {error.strerror or error}") from error
        raise
