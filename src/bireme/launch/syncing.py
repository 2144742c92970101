"""Copies the launcher's folder to other hosts: one archive here, unpacked there by agents.

Nothing but the agent is needed on a host. Files that are there already are overwritten, and others
stay.
"""

import contextlib
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

from bireme.errors import ConfigError

__all__ = ("Unpacker", "archive_of")

_LEFT_OUT = frozenset({".git", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache"})
"""What every host has its own of, or none."""


@contextlib.contextmanager
def archive_of(folder: Path) -> Iterator[Path]:
    """Yield a compressed archive of a folder, which is there until the block ends.

    Raises:
        ConfigError: The folder cannot be read, or there is no room for the archive.
    """
    with tempfile.NamedTemporaryFile(prefix="bireme-sync-", suffix=".tar.gz") as file:
        try:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
                archive.add(folder, arcname=".", filter=_wanted)
            file.flush()
        except OSError as error:
            raise ConfigError(f"cannot copy {folder}: {error}") from error
        yield Path(file.name)


class Unpacker:
    """Takes an archive in pieces, and unpacks it into a folder.

    Args:
        folder: Where to; made when it is not there. A relative one is below the home folder.

    Raises:
        ConfigError: It cannot be written to.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path.home() / Path(folder).expanduser()
        self._file: IO[bytes] = tempfile.TemporaryFile()

    def put(self, data: bytes) -> None:
        """Take the next piece.

        Raises:
            ConfigError: There is no room for it.
        """
        try:
            self._file.write(data)
        except OSError as error:
            raise self._refusal(error) from error

    def finish(self) -> None:
        """Unpack what has come.

        Raises:
            ConfigError: The folder cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file.seek(0)
            with tarfile.open(fileobj=self._file, mode="r:gz") as archive:
                # Links may lead anywhere, as they do where they come from; names may not.
                archive.extractall(self.folder, filter="tar")
        except (OSError, tarfile.TarError) as error:
            raise self._refusal(error) from error

    def __enter__(self) -> "Unpacker":
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        # What could not be written has been complained of.
        with contextlib.suppress(OSError):
            self._file.close()

    def _refusal(self, error: Exception) -> ConfigError:
        return ConfigError(f"cannot copy files to {self.folder}: {error}")


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is not worth copying, and what is no file: sockets, pipes, devices."""
    if Path(entry.name).name in _LEFT_OUT:
        return None
    return entry if entry.isfile() or entry.isdir() or entry.issym() or entry.islnk() else None
