"""Replaces a file as a whole, and opens one of any name.

Whatever writes and reads states and checkpoints calls it.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from bireme.errors import ConfigError, FileError

__all__ = ("TEMPORARY", "path_of", "readable", "write")

TEMPORARY = ".states-{token}.tmp"
"""What a file is called while it is written; only a process that was killed leaves one behind."""


def path_of(path: object) -> str:
    """Return a path as text.

    Raises:
        ConfigError: It is none.
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise ConfigError(f"a path is text or a pathlib.Path, got {path!r:.60}")
    return name


@contextmanager
def readable(path: str) -> Iterator[str]:
    """Give a name under which a file can be opened meanwhile, also by what takes UTF-8 alone.

    Raises:
        OSError: It cannot be read.

    Source:
        safetensors 0.8 refuses other names, which file systems allow.
    """
    with open(path, "rb") as file:
        try:
            path.encode()
        except UnicodeEncodeError:
            path = f"/dev/fd/{file.fileno()}"
        yield path


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
    name = path_of(path)
    if not os.path.basename(name) or os.path.isdir(name):
        raise FileError(f"cannot write {name!r}: it names no file; add a file name")
    if os.path.exists(name) and not os.path.isfile(name):
        # A device or a pipe would be replaced by the new file.
        raise FileError(f"cannot write {name!r}: it is no regular file")
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
