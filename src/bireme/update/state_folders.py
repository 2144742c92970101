"""Optimizer state in a folder: a file that each server wrote, and an index that names them.

The index is replaced last. Until then a reader sees the old one and the old files, whoever is
killed at whatever moment. Servers call :func:`write_part`; the worker that saves calls
:func:`write_index`; :mod:`bireme.update.states` reads.
"""

import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from bireme.errors import ConfigError, DataError
from bireme.types.keys import Key
from bireme.update import atomic

__all__ = ("INDEX", "joined", "names_folder", "new_token", "read", "write_index", "write_part")

INDEX = "index.json"

FORMAT = "bireme-optimizer-states-folder-1"

_TOKEN = re.compile(r"[0-9a-f]{16}")
_PART = re.compile(r"states-[0-9a-f]{16}-[0-9a-f]{8}\.safetensors")
_LITTER = re.compile(re.escape(atomic.TEMPORARY).replace(r"\{token\}", "[0-9a-f]{16}"))

State = Mapping[str, object]


def names_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether states saved to ``path`` belong in a folder: it is one, or ends in a slash.

    Example:
        >>> names_folder("no/such/"), names_folder("no/such")
        (True, False)
    """
    name = atomic.path_of(path)
    return name.endswith(("/", os.sep)) or os.path.isdir(name)


def new_token() -> str:
    """Return a name for one act of saving, which no other has."""
    return secrets.token_hex(8)


def write_part(folder: str, token: str, write: Callable[[str], None]) -> str:
    """Write one server's part of ``folder`` and return its file's name.

    Args:
        folder: An absolute path that exists.
        token: Of :func:`new_token`, the same for every server.
        write: Given a path at which no file is, writes the part there.

    Raises:
        ConfigError: There is no such folder here, or what was sent is no token.
        OSError: The file cannot be written.
    """
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ConfigError(f"a part of optimizer states cannot be named by {token!r:.60}")
    if not isinstance(folder, str) or not os.path.isabs(folder) or not os.path.isdir(folder):
        raise ConfigError(
            f"a server finds no folder {folder!r:.200} to save its part of the states in; use one "
            "that workers and servers share, or save to a single file (a path without a slash at "
            "its end)"
        )
    name = f"states-{token}-{secrets.token_hex(4)}.safetensors"
    write(os.path.join(folder, name))
    return name


def write_index(
    folder: str,
    optimizer: str,
    numbers: object,
    files: Sequence[str],
    keys: Sequence[tuple[Key, Sequence[int], Sequence[tuple[str, int]]]],
) -> None:
    """Make the files of ``folder`` its content, and remove those of before.

    Args:
        folder: Where every part was written.
        optimizer: The class's name.
        numbers: Its numbers, as plain data.
        files: Names of the parts.
        keys: Each key, its shape, and its slots in order: name in the parts, and length.

    Raises:
        ConfigError: A part is not to be seen here.
    """
    missing = [name for name in files if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        raise ConfigError(
            f"a server wrote {missing[0]} in a folder {folder!r} that is not this one; use a "
            "folder that workers and servers share, or save to a single file"
        )
    index = {
        "format": FORMAT,
        "optimizer": optimizer,
        "numbers": numbers,
        "files": list(files),
        "keys": [
            {"key": key, "shape": list(shape), "slots": [list(slot) for slot in slots]}
            for key, shape, slots in keys
        ],
    }
    atomic.write(os.path.join(folder, INDEX), json.dumps(index).encode())
    for name in os.listdir(folder):
        if (_PART.fullmatch(name) and name not in files) or _LITTER.fullmatch(name):
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))


def read(
    folder: str, read_part: Callable[[str], Mapping[Key, State]]
) -> tuple[str, Any, dict[Key, dict[str, object]]]:
    """Return the optimizer's name, its numbers and the state of each key.

    Args:
        folder: Where :func:`write_index` wrote.
        read_part: Reads one part.

    Raises:
        DataError: The index, or what it names, is unreadable.
        OSError: There is no index.
    """
    path = os.path.join(folder, INDEX)
    with open(path, "rb") as file:
        raw = file.read()
    try:
        index = json.loads(raw)
        if index["format"] != FORMAT:
            raise ValueError(f"unknown format {index['format']!r}")
        parts: dict[Key, State] = {}
        for name in index["files"]:
            if not _PART.fullmatch(name):
                raise ValueError(f"it names {name!r}")
            parts |= read_part(os.path.join(folder, name))
        states = {each["key"]: _whole(each, parts) for each in index["keys"]}
        return index["optimizer"], index.get("numbers"), {k: v for k, v in states.items() if v}
    except FileNotFoundError as error:
        raise DataError(f"{path} names {error.filename}, which is not there") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is no readable index of optimizer states: {error}") from error


def joined(
    shape: Sequence[int], lengths: Sequence[int], parts: Sequence[State]
) -> dict[str, object]:
    """Join the states of a key's slots to that of the whole value.

    Args:
        shape: Of the value.
        lengths: Elements of each slot.
        parts: State of each slot; a slot that was never updated has none, and counts as zeros.

    Returns:
        The whole state; empty when no slot has any.

    Example:
        >>> joined((2, 1), [1, 1], [{"m": torch.ones(1)}, {}])
        {'m': tensor([[1.],
                [0.]])}
    """
    first = next((part for part in parts if part), {})
    return {name: _joined(shape, lengths, [part.get(name) for part in parts]) for name in first}


def _joined(shape: Sequence[int], lengths: Sequence[int], pieces: Sequence[object]) -> object:
    one = next((piece for piece in pieces if piece is not None), None)
    if len(pieces) == 1 or not isinstance(one, torch.Tensor) or one.dim() == 0:
        return one
    flats = [
        piece.reshape(-1) if isinstance(piece, torch.Tensor) else one.new_zeros(length)
        for piece, length in zip(pieces, lengths, strict=True)
    ]
    return torch.cat(flats).view(tuple(shape))


def _whole(entry: Mapping[str, Any], parts: Mapping[Key, State]) -> dict[str, object]:
    slots = entry["slots"]
    found = [parts.get(name, {}) for name, _ in slots]
    return joined(entry["shape"], [length for _, length in slots], found)
