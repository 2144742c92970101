"""The saved place of a sampler within an epoch: read, checked, completed, merged.

Pure values. Called by :mod:`bireme.data.sharding`; users see it as the dictionary that
``state_dict`` returns.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from bireme.data.dealing import Deal
from bireme.errors import ConfigError

__all__ = ("Division", "ShardState", "integer")

Division: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""(shares, positions): how samples were dealt, and how many of its own each part used."""

_END = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """Where the parts of a data set are within one epoch.

    Example:
        >>> state = ShardState(n=7, seed=0, shuffle=True, drop_last=False, epoch=2,
        ...                    earlier=(), shares=(1, 1, 1), positions=(None, 1, None))
        >>> ShardState.read(state.to_dict()) == state
        True
        >>> state.all_positions()
        (1, 1, 1)
    """

    n: int
    seed: int
    shuffle: bool
    drop_last: bool
    epoch: int
    earlier: tuple[Division, ...]
    """Former divisions of this epoch, oldest first."""
    shares: tuple[int, ...]
    positions: tuple[int | None, ...]
    """Samples that each part has used of its own; ``None`` where this state does not know."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists that JSON can hold."""
        return {
            "n": self.n,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "epoch": self.epoch,
            "earlier": [[list(shares), list(positions)] for shares, positions in self.earlier],
            "shares": list(self.shares),
            "positions": list(self.positions),
        }

    @classmethod
    def read(cls, state: Mapping[str, Any]) -> "ShardState":
        """Return the state that :meth:`to_dict` wrote.

        Raises:
            ConfigError: An entry is missing, unknown, or of another kind.
        """
        names = tuple(cls.__slots__)
        if not isinstance(state, Mapping) or set(state) != set(names):
            found = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise ConfigError(f"a sampler's state holds {', '.join(names)}; got {found}")
        shares = _integers("shares", state["shares"], 1)
        read = cls(
            n=integer("n", state["n"], 1),
            seed=integer("seed", state["seed"], 0, _END),
            shuffle=_flag("shuffle", state["shuffle"]),
            drop_last=_flag("drop_last", state["drop_last"]),
            epoch=integer("epoch", state["epoch"], 0, _END),
            earlier=tuple(_division(entry) for entry in _list("earlier", state["earlier"])),
            shares=shares,
            positions=_positions(state["positions"], len(shares)),
        )
        read._refuse_impossible()
        return read

    def dealt(self) -> int:
        """Count the samples that the present division deals out."""
        rest = self.n - sum(sum(positions) for _, positions in self.earlier)
        return Deal(self.shares).whole(rest) if self.drop_last else rest

    def all_positions(self) -> tuple[int, ...]:
        """Return the position of every part, inferred from one part where only one is known.

        Raises:
            ConfigError: The state does not tell.
        """
        known = [part for part, position in enumerate(self.positions) if position is not None]
        if len(known) == len(self.positions):
            return tuple(position or 0 for position in self.positions)
        part = known[0]
        position = self.positions[part] or 0
        inferred = (
            Deal(self.shares).in_step(part, position, self.dealt()) if len(known) == 1 else None
        )
        if inferred is None:
            raise ConfigError(
                f"parts {known} at {[self.positions[at] for at in known]} do not tell where the "
                f"other parts of shares {list(self.shares)} are; load the merged states of all "
                "parts (ShardSampler.merge_states), or that of a part with more samples"
            )
        return inferred

    @classmethod
    def merge(cls, states: Sequence[Mapping[str, Any]]) -> "ShardState":
        """Return one state that knows what ``states`` know together.

        Raises:
            ConfigError: They are of different epochs, data sets or divisions, or a part's
                position is missing or given twice.
        """
        read = [cls.read(state) for state in states]
        if not read:
            raise ConfigError("merge_states needs the state of every part, got none")
        positions: list[int | None] = [None] * len(read[0].shares)
        for state in read:
            if replace(state, positions=()) != replace(read[0], positions=()):
                raise ConfigError("the states are not of one data set, epoch and division")
            for part, position in enumerate(state.positions):
                if position is not None and positions[part] is not None:
                    raise ConfigError(f"the position of part {part} is given twice")
                positions[part] = positions[part] if position is None else position
        if None in positions:
            raise ConfigError(f"the state of part {positions.index(None)} is missing")
        return replace(read[0], positions=tuple(positions))

    def _refuse_impossible(self) -> None:
        rest = self.n
        for shares, positions in self.earlier:
            _refuse_beyond(Deal(shares).sizes(rest), positions)
            rest -= sum(positions)
        _refuse_beyond(Deal(self.shares).sizes(self.dealt()), self.positions)


def integer(name: str, value: object, low: int, end: int | None = None) -> int:
    """Return ``value`` as an int in ``low <= value < end``.

    Raises:
        ConfigError: It is no integer, or out of range.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"{name} must be an integer, got {value!r}") from None
    if isinstance(value, bool):
        raise ConfigError(f"{name} must be an integer, got {value!r}")
    if number < low or (end is not None and number >= end):
        bounds = f">= {low}" if end is None else f">= {low} and < {end}"
        raise ConfigError(f"{name} must be {bounds}, got {number}")
    return number


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return value


def _list(name: str, value: object) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} must be a list, got {value!r}")
    return value


def _integers(name: str, value: object, low: int) -> tuple[int, ...]:
    return tuple(integer(name, entry, low) for entry in _list(name, value))


def _division(entry: object) -> Division:
    if not isinstance(entry, list | tuple) or len(entry) != 2:
        raise ConfigError(f"an entry of 'earlier' must be [shares, positions], got {entry!r}")
    shares, positions = _integers("shares", entry[0], 1), _integers("positions", entry[1], 0)
    if len(shares) != len(positions):
        raise ConfigError(f"{len(shares)} shares but {len(positions)} positions in {entry!r}")
    return shares, positions


def _positions(value: object, num_parts: int) -> tuple[int | None, ...]:
    entries = _list("positions", value)
    if len(entries) != num_parts or all(entry is None for entry in entries):
        raise ConfigError(f"positions must hold {num_parts} entries, one of them known: {value!r}")
    return tuple(None if entry is None else integer("a position", entry, 0) for entry in entries)


def _refuse_beyond(sizes: Sequence[int], positions: Sequence[int | None]) -> None:
    for part, (size, position) in enumerate(zip(sizes, positions, strict=True)):
        if position is not None and position > size:
            raise ConfigError(f"part {part} cannot be at {position}: it has {size} samples")
