"""Optimizer state outside a store: safetensors with a JSON header, so that it cannot hold code.

Stores call :func:`save` and :func:`load` for files, and servers :func:`pack` and :func:`unpack` for
the pieces that they send; all check everything before they change anything.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes

from bireme.errors import BiremeError, ConfigError, DataError, UnsupportedError
from bireme.types.keys import Key
from bireme.update import atomic, state_folders
from bireme.update.spec import OptimizerSpec

__all__ = (
    "Content",
    "check",
    "load",
    "numbers_of",
    "pack",
    "read",
    "save",
    "save_folder",
    "unpack",
)

FORMAT = "bireme-optimizer-states-1"

_HEADER = "header"

States = Mapping[Key, Mapping[str, object]]


def save(path: str, spec: OptimizerSpec, states: States) -> None:
    """Write ``states`` to ``path``; a reader sees the old file or the whole new one.

    Args:
        path: Where to; replaced if it exists.
        spec: The optimizer the states belong to.
        states: Tensors and plain numbers by name, for each key.

    Raises:
        UnsupportedError: A state is neither a tensor nor a plain number.
        OSError: The file cannot be written.
    """
    keys, tensors = _taken_apart(states)
    header = {
        "format": FORMAT,
        "optimizer": spec.name,
        "numbers": numbers_of(spec),
        "keys": keys,
    }
    atomic.write(path, save_bytes(tensors, {"bireme": json.dumps(header)}))


def save_folder(folder: str, spec: OptimizerSpec, states: States) -> None:
    """Write ``states`` into a folder, as servers do together; see :func:`save`."""
    os.makedirs(folder, exist_ok=True)
    folder = os.path.abspath(folder)
    named: States = {str(number): state for number, state in enumerate(states.values())}
    part = state_folders.write_part(
        folder, state_folders.new_token(), lambda path: save(path, spec, named)
    )
    keys = [(key, (), [(str(number), 0)]) for number, key in enumerate(states)]
    state_folders.write_index(folder, spec.name, numbers_of(spec), [part], keys)


def numbers_of(spec: OptimizerSpec) -> dict[str, object]:
    """Return the optimizer's numbers as plain data, for the header of a file.

    Example:
        >>> numbers_of(OptimizerSpec("sgd", {"lr": 0.5}, lr_mult={"b": 0.0}))["own"][0][1]["lr"]
        0.0
    """
    special = dict.fromkeys([*spec.groups, *spec.lr_mult, *spec.wd_mult])
    return {
        "params": spec.arguments(None),
        "own": [[key, spec.arguments(key)] for key in special],
        "rescale_grad": spec.rescale_grad,
    }


def pack(states: States) -> bytes:
    """Return ``states`` as bytes, for a peer that calls :func:`unpack`.

    Raises:
        UnsupportedError: A state is neither a tensor nor a plain number.

    Example:
        >>> unpack(pack({"w": {"step": 3}}))
        {'w': {'step': 3}}
    """
    keys, tensors = _taken_apart(states)
    return bytes(save_bytes({**tensors, _HEADER: _as_tensor(json.dumps(keys))}))


def unpack(raw: bytes) -> dict[Key, dict[str, object]]:
    """Read what :func:`pack` made.

    Raises:
        DataError: The bytes are truncated, corrupt, or something else.
    """
    try:
        tensors = load_bytes(raw)
        return _read(json.loads(bytes(tensors.pop(_HEADER).numpy())), tensors)
    except (
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
    ) as error:
        raise DataError(f"a piece of optimizer state is unreadable: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Content:
    """What a file or folder of optimizer states holds."""

    optimizer: str
    """Name of the class."""
    states: dict[Key, dict[str, object]]
    """Tensors and plain numbers by name, for each key."""
    numbers: Mapping[str, Any] | None = None
    """What :func:`numbers_of` returned; files of earlier versions have none."""
    own_numbers: Sequence[tuple[Key, Mapping[str, Any]]] = field(init=False)
    """Keys that have numbers of their own, and these."""

    def __post_init__(self) -> None:
        own = [] if self.numbers is None else self.numbers["own"]
        object.__setattr__(self, "own_numbers", [(key, _tuples(given)) for key, given in own])

    def numbers_of(self, key: Key) -> dict[str, Any]:
        """Return the numbers of ``key``; empty when the file has none."""
        common = {} if self.numbers is None else _tuples(self.numbers["params"])
        return {**next((given for own, given in self.own_numbers if own == key), common)}


def _tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    # JSON has lists only.
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }


def read(path: str | os.PathLike[str]) -> Content:
    """Read what :func:`save` wrote, or a folder that servers wrote.

    Raises:
        DataError: It is truncated, corrupt, or of another format.
        OSError: It cannot be read.
    """
    name = atomic.path_of(path)
    try:
        if os.path.isdir(name):
            optimizer, numbers, states = state_folders.read(name, lambda part: _file(part).states)
            return Content(optimizer, states, numbers)
        return _file(name)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, BiremeError):
            raise
        raise DataError(f"{name} does not hold what its header names: {error!r}") from error


def load(
    path: str, spec: OptimizerSpec, stored: Mapping[Key, torch.Tensor]
) -> dict[Key, dict[str, object]]:
    """Read the states of a store's keys.

    Args:
        path: A file or folder.
        spec: The optimizer that will use the states.
        stored: The value of every key of the store.

    Raises:
        DataError: As :func:`read` does.
        ConfigError: It belongs to another optimizer, or to keys that the store does not hold.
        OSError: It cannot be read.
    """
    content = read(path)
    if content.optimizer != spec.name:
        raise ConfigError(
            f"{path} holds states of {content.optimizer}, but the store runs {spec.name}"
        )
    check(path, content.states, {key: value.shape for key, value in stored.items()})
    return content.states


def _file(path: str) -> Content:
    try:
        with atomic.readable(path) as name, safe_open(name, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("bireme", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{path} is no readable file of optimizer states: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise DataError(f"{path} holds no optimizer states written by save_optimizer_states")
    states = _read(header["keys"], tensors)
    return Content(header["optimizer"], states, header.get("numbers"))


def check(source: str, states: States, shapes: Mapping[Key, torch.Size]) -> None:
    """Refuse states that do not belong to the keys of a store.

    Args:
        source: Where the states come from, for the message.
        states: Tensors and plain numbers by name, for each key.
        shapes: The shape of every key of the store.

    Raises:
        ConfigError: A key is unknown, or a state cannot belong to a value of its shape.
    """
    for key, state in states.items():
        if key not in shapes:
            raise ConfigError(
                f"{source} holds a state for key {key!r}, which the store does not have; init it "
                "first"
            )
        _check_shapes(source, key, state, shapes[key])


def _taken_apart(states: States) -> tuple[list[dict[str, object]], dict[str, torch.Tensor]]:
    tensors: dict[str, torch.Tensor] = {}
    keys: list[dict[str, object]] = []
    for number, (key, state) in enumerate(states.items()):
        entry = {name: _packed(f"{number}.{name}", value, tensors) for name, value in state.items()}
        keys.append({"key": key, "state": entry})
    return keys, tensors


def _as_tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _packed(name: str, value: object, tensors: dict[str, torch.Tensor]) -> dict[str, object]:
    if isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo:
        value = value.detach().coalesce()
        tensors[f"{name}.rows"] = value.indices()[0].contiguous()
        tensors[f"{name}.values"] = value.values().contiguous()
        return {"rows": f"{name}.rows", "values": f"{name}.values", "shape": list(value.shape)}
    if isinstance(value, torch.Tensor):
        # A copy, because safetensors refuses tensors that share memory.
        tensors[name] = value.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"plain": value}
    raise UnsupportedError(f"cannot save optimizer state {name} of type {type(value).__name__}")


def _read(
    items: Sequence[Mapping[str, Any]], tensors: Mapping[str, torch.Tensor]
) -> dict[Key, dict[str, object]]:
    return {
        item["key"]: {name: _unpacked(packed, tensors) for name, packed in item["state"].items()}
        for item in items
    }


def _unpacked(packed: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> object:
    if "plain" in packed:
        return packed["plain"]
    if "tensor" in packed:
        return tensors[packed["tensor"]]
    rows, values = tensors[packed["rows"]], tensors[packed["values"]]
    return torch.sparse_coo_tensor(
        rows[None], values, packed["shape"], check_invariants=True
    ).coalesce()


def _check_shapes(source: str, key: Key, state: Mapping[str, object], shape: torch.Size) -> None:
    # A state is a scalar, like its value, or (for factored moments) of the same rank.
    for name, each in state.items():
        if not isinstance(each, torch.Tensor) or each.dim() == 0 or each.shape == shape:
            continue
        sizes = zip(each.shape, shape, strict=False)
        if each.dim() != len(shape) or any(a not in (1, b) for a, b in sizes):
            raise ConfigError(
                f"{source}: state {name!r} of key {key!r} has shape {tuple(each.shape)}, but the "
                f"stored value has {tuple(shape)}"
            )
