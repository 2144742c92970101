"""Checkpoints on disk: three files that hold tensors and plain values, and cannot hold code.

Called by :class:`bireme.Module` and by users who want to look inside one. For prefix ``out/net``
and epoch 3:

* ``out/net-0003.safetensors``: parameters and buffers under their names in ``net.state_dict()``;
  of tied ones the first name only;
* ``out/net-0003.optimizer.safetensors``: tensors of the training state, where there is one;
* ``out/net-0003.json``: the epoch, the net's class, tied names, the rest of the training state, and
  size and CRC-32 of the other files. It is written last, so it never speaks of half a save.
"""

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from bireme.errors import ConfigError, DataError, UnsupportedError
from bireme.train import trees
from bireme.update import atomic

__all__ = ("Checkpoint", "read", "write")

FORMAT = "bireme-checkpoint"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """Everything that a training run needs to go on."""

    epoch: int
    """Epochs done."""

    net_class: str
    """Import path of the net's class, ``package.module:Class``."""

    net_state: Mapping[str, Any]
    """What ``net.state_dict()`` returned."""

    training: trees.Tree = None
    """State of optimizer, scheduler and random numbers; ``None`` when only the net is kept."""


def write(prefix: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Write ``checkpoint`` beside others of the same ``prefix``; missing folders are made.

    Args:
        prefix: Folder and start of the file names.
        checkpoint: What to write.

    Raises:
        ConfigError: The epoch is negative, the prefix names no file, or the folder cannot be
            written.
        UnsupportedError: The state holds something that a checkpoint cannot, such as a function
            or a sparse tensor. Nothing is written then.

    Guarantees:
        Each file is replaced whole or not at all. A crash between two files of a save over an
        older one of the same epoch is noticed by :func:`read`.
    """
    net_path, training_path, json_path = _paths(prefix, checkpoint.epoch)
    state = checkpoint.net_state
    own = _own_tensors(state)
    tied = _tied_names(state)
    training_tensors: dict[str, torch.Tensor] = {}
    training = trees.encode(checkpoint.training, training_tensors)
    contents = [_encoded({name: value for name, value in own.items() if name not in tied})]
    if training is not None:
        contents.append(_encoded(training_tensors))
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "epoch": checkpoint.epoch,
        "net_class": checkpoint.net_class,
        "tied": tied,
        "extra": _extra(state),
        "training": training,
        "files": [{"size": len(data), "crc32": zlib.crc32(data)} for data in contents],
    }
    try:
        json_path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make folder {str(json_path.parent)!r}: {error}") from error
    for path, data in zip((net_path, training_path), contents, strict=False):
        _replace(path, data)
    _replace(json_path, json.dumps(meta, indent=1).encode())
    if training is None:
        training_path.unlink(missing_ok=True)


def read(prefix: str | os.PathLike[str], epoch: int, *, with_training: bool = True) -> Checkpoint:
    """Read what :func:`write` wrote.

    Args:
        prefix: Folder and start of the file names.
        epoch: Which of them.
        with_training: Read the training state too, where there is one.

    Raises:
        ConfigError: The epoch is negative or no integer.
        DataError: A file is missing, truncated, corrupt, of another save, or of another format
            or a later version.
    """
    net_path, training_path, json_path = _paths(prefix, epoch)
    meta = _read_meta(json_path)
    try:
        net_state = dict(_tensors(net_path, meta["files"][0]))
        net_state |= {name: trees.decode(code, {}) for name, code in meta["extra"].items()}
        net_state |= {name: net_state[first] for name, first in meta["tied"].items()}
        training = None
        if with_training and meta["training"] is not None:
            training = trees.decode(meta["training"], _tensors(training_path, meta["files"][1]))
        return Checkpoint(
            epoch=meta["epoch"],
            net_class=meta["net_class"],
            net_state=net_state,
            training=training,
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise DataError(f"{json_path} lacks or garbles an entry: {error!r}") from error


def _paths(prefix: str | os.PathLike[str], epoch: int) -> tuple[Path, Path, Path]:
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
        raise ConfigError(f"epoch must be an integer >= 0, got {epoch!r}")
    name = os.fspath(prefix) if isinstance(prefix, str | os.PathLike) else ""
    if os.path.basename(name) in ("", ".", ".."):
        raise ConfigError(
            f"a checkpoint's prefix is a folder and the start of a file's name, such as 'out/net'; "
            f"got {prefix!r:.60}"
        )
    start = f"{name}-{epoch:04d}"
    return (
        Path(f"{start}.safetensors"),
        Path(f"{start}.optimizer.safetensors"),
        Path(f"{start}.json"),
    )


def _tied_names(state: Mapping[str, Any]) -> dict[str, str]:
    """Map each further name of a tensor to its first name."""
    first: dict[tuple[Any, ...], str] = {}
    tied = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.numel():
            place = value.data_ptr(), value.device, value.dtype, value.shape, value.stride()
            if first.setdefault(place, name) != name:
                tied[name] = first[place]
    return tied


def _own_tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {
        # A copy, because safetensors refuses tensors that share memory in part.
        name: trees.cpu_copy(value, name)
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _extra(state: Mapping[str, Any]) -> dict[str, trees.Json]:
    """Encode what is no tensor: the ``get_extra_state`` of some nets."""
    extra: dict[str, trees.Json] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            tensors: dict[str, torch.Tensor] = {}
            extra[name] = trees.encode(value, tensors, name)
            if tensors:
                raise UnsupportedError(f"{name} mixes tensors and other values; use a buffer")
    return extra


def _encoded(tensors: Mapping[str, torch.Tensor]) -> bytes:
    try:
        return bytes(safetensors.torch.save(dict(tensors), {"format": "pt"}))
    except (ValueError, KeyError, safetensors.SafetensorError) as error:
        raise UnsupportedError(f"safetensors cannot hold this state: {error}") from error


def _replace(path: Path, data: bytes) -> None:
    atomic.write(path, data)


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read checkpoint {path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is no JSON: truncated or corrupt ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise DataError(f"{path} is no {FORMAT}")
    if meta.get("version") != VERSION:
        raise DataError(f"{path} has version {meta.get('version')!r}; this release reads {VERSION}")
    return meta


def _tensors(path: Path, stamp: Mapping[str, int]) -> dict[str, torch.Tensor]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if len(data) != stamp["size"]:
        raise DataError(f"{path} has {len(data)} bytes instead of {stamp['size']}: truncated?")
    if zlib.crc32(data) != stamp["crc32"]:
        raise DataError(f"{path} is corrupt or of another save: its checksum differs")
    try:
        return dict(safetensors.torch.load(data))
    except safetensors.SafetensorError as error:
        raise DataError(f"{path} is no safetensors file: {error}") from error
