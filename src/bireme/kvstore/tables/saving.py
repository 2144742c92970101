"""Saves and loads a table: tells the servers, some rows at a time, and keeps the list of files.

Runs on rank 0 while no worker pushes. Called by :mod:`bireme.kvstore.tables.table`.
"""

import json
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from bireme.errors import BiremeError, ConfigError, DataError
from bireme.kvstore.tables.options import TableOptions
from bireme.update import OptimizerSpec, to_body

__all__ = ("load", "manifest_path", "read_manifest", "save")

FORMAT = "bireme-table-1"

Tell = Callable[[Mapping[str, object]], dict[int, Any]]
"""Sends an operation to every server and returns their answers by rank."""

_CHUNK_BYTES = 4 << 20
"""Bytes of values that a server reads or writes between two messages."""


def manifest_path(folder: str, name: str) -> str:
    """Return where the list of a table's files is.

    Example:
        >>> manifest_path("/data", "user/id")
        '/data/user%2Fid.table.json'
    """
    return os.path.join(folder, f"{quote(name, safe='')}.table.json")


def save(tell: Tell, folder: str, options: TableOptions, spec: OptimizerSpec | None) -> None:
    """Have every server write its rows, then write the list; old files go last.

    Raises:
        ConfigError: A server cannot write there; nothing has changed then.
        OSError: The list cannot be written.
    """
    folder = os.path.abspath(folder)
    stem = f"{quote(options.name, safe='')}.{secrets.token_hex(8)}"
    before = _old_files(folder, options)
    try:
        begun = tell({"op": "save_begin", "folder": os.fsencode(folder), "stem": stem})
        most = max((answer["rows"] for answer in begun.values()), default=0)
        for begin, end in _chunks(most, options):
            tell({"op": "save_rows", "begin": begin, "end": end})
        tell({"op": "save_end"})
    except BiremeError:
        with suppress(BiremeError):
            tell({"op": "abort"})
        with suppress(OSError):
            _remove(folder, [name for name in os.listdir(folder) if name.startswith(stem)])
        raise
    manifest = {
        "format": FORMAT,
        **options.initial(),
        "optimizer": None if spec is None else to_body(spec, {}),
        "rows": sum(answer["rows"] for answer in begun.values()),
        "files": [begun[rank]["file"] for rank in sorted(begun)],
    }
    _write(manifest_path(folder, options.name), manifest)
    _remove(folder, before)


def read_manifest(folder: str, options: TableOptions) -> dict[str, Any]:
    """Return the list of a saved table, which must be the same table.

    Raises:
        ConfigError: It cannot be read, or the table was another one.
        DataError: It is damaged.
    """
    path = manifest_path(os.path.abspath(folder), options.name)
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise ConfigError(f"table {options.name!r} was not saved in {folder}: {error}") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise DataError(f"{path} is no list of a table's files")
    for name, value in options.initial().items():
        if found.get(name) != value:
            raise ConfigError(
                f"{path} was saved with {name}={found.get(name)!r}, but the table here has "
                f"{value!r}: rows that were never updated would differ"
            )
    files = found.get("files")
    if not isinstance(files, list) or not all(_is_plain_name(each) for each in files):
        raise DataError(f"{path} does not name its files")
    return found


def load(
    tell: Tell,
    folder: str,
    options: TableOptions,
    manifest: Mapping[str, Any],
    optimizer_states: bool,
) -> None:
    """Have every server read its rows out of all files, then replace those that it has.

    Raises:
        ConfigError: A file cannot be read, is damaged, or holds something else; no row has
            changed then.
        DataError: The files and their list do not agree.
    """
    # As bytes: names of files need not be text.
    body = {"folder": os.fsencode(os.path.abspath(folder)), "files": manifest["files"]}
    try:
        begun = tell({"op": "load_begin", "state": optimizer_states, **body})
        sizes = next(iter(begun.values()))["rows"]
        if sum(sizes) != manifest.get("rows"):
            raise DataError(
                f"{folder} holds {sum(sizes)} rows of table {options.name!r}, and its list says "
                f"{manifest.get('rows')}"
            )
        for part, size in enumerate(sizes):
            for begin, end in _chunks(size, options):
                tell({"op": "load_rows", "part": part, "begin": begin, "end": end})
        tell({"op": "load_end"})
    except BiremeError:
        with suppress(BiremeError):
            tell({"op": "abort"})
        raise


def _chunks(num_rows: int, options: TableOptions) -> list[tuple[int, int]]:
    step = max(1, _CHUNK_BYTES // (options.dim * options.dtype.itemsize))
    return [(begin, begin + step) for begin in range(0, num_rows, step)]


def _is_plain_name(name: object) -> bool:
    return isinstance(name, str) and os.path.basename(name) == name and name not in ("", ".", "..")


def _old_files(folder: str, options: TableOptions) -> list[str]:
    try:
        with open(manifest_path(folder, options.name), encoding="utf-8") as file:
            files = json.load(file)["files"]
        return [name for name in files if _is_plain_name(name)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _remove(folder: str, names: list[str]) -> None:
    for name in names:
        with suppress(OSError):
            os.unlink(os.path.join(folder, name))


def _write(path: str, manifest: Mapping[str, object]) -> None:
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
