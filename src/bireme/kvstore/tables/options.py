"""What the user says of a table, checked, and told to the servers."""

import hashlib
import math
from dataclasses import astuple, dataclass

import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.placement.rows import stream_of
from bireme.types.choices import Eviction, Initialiser
from bireme.types.dtypes import DType
from bireme.wire.tables import MOST_DIM, TableSpec

__all__ = ("TableOptions",)

_DTYPES = {torch.float32: DType.FLOAT32, torch.float64: DType.FLOAT64}
_LONGEST_NAME = 200
_MOST_ROWS = 2**62


@dataclass(frozen=True)
class TableOptions:
    """A table as every worker of a job declares it.

    Args:
        name: Its name, the same on every worker; no two tables of a store have the same.
        dim: Elements of a row, 1 to 2**20.
        num_rows: Ids run from 0 to below it; ``None`` takes any int64.
        dtype: ``torch.float32`` or ``torch.float64``.
        init: ``"normal"``, ``"uniform"`` or ``"zeros"``.
        scale: Standard deviation, or half the width, of the first values; >= 0.
        seed: Of the first values, 0 to below 2**63.
        max_rows: Rows that the servers keep at most, all together; ``None`` for no limit.
        eviction: What happens to the rows that are too many: ``"refuse"``, ``"lru"``, ``"lfu"``.

    Raises:
        ConfigError: A value is out of range.
        UnsupportedError: The element type cannot be a table's.

    Example:
        >>> TableOptions("user", 8, eviction="random")
        Traceback (most recent call last):
        bireme.errors.ConfigError: eviction must be one of refuse, lru, lfu; got 'random'
    """

    name: str
    dim: int
    num_rows: int | None = None
    dtype: torch.dtype = torch.float32
    init: str = "normal"
    scale: float = 1.0
    seed: int = 0
    max_rows: int | None = None
    eviction: str = "refuse"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= _LONGEST_NAME:
            raise ConfigError(
                f"a table's name has 1 to {_LONGEST_NAME} characters, got {self.name!r:.60}"
            )
        _check_int("dim", self.dim, 1, MOST_DIM)
        _check_int("seed", self.seed, 0, 2**63 - 1)
        for what, number in (("num_rows", self.num_rows), ("max_rows", self.max_rows)):
            if number is not None:
                _check_int(what, number, 1, _MOST_ROWS)
        if self.dtype not in _DTYPES:
            raise UnsupportedError(
                f"table {self.name!r}: rows are float32 or float64, not {self.dtype}"
            )
        _check_choice("init", self.init, [each.value for each in Initialiser])
        _check_choice("eviction", self.eviction, [each.value for each in Eviction])
        scale = self.scale
        if isinstance(scale, bool) or not isinstance(scale, int | float):
            raise ConfigError(f"scale must be a number, got {scale!r:.60}")
        if not (math.isfinite(scale) and 0 <= scale <= 1e30):
            raise ConfigError(f"scale must be from 0 to 1e30, got {scale}")

    @property
    def wire_dtype(self) -> DType:
        """The element type as messages name it."""
        return _DTYPES[self.dtype]

    def specs(self, num_servers: int) -> list[TableSpec]:
        """Return what each server is told.

        Raises:
            ConfigError: There would be servers without a single row.
        """
        most = self.max_rows or 0
        if most and most < num_servers:
            raise ConfigError(
                f"table {self.name!r}: max_rows={most} is less than one row for each of "
                f"{num_servers} servers"
            )
        return [
            TableSpec(
                dim=self.dim,
                dtype=self.wire_dtype,
                initialiser=Initialiser(self.init),
                scale=float(self.scale),
                seed=self.seed,
                stream=stream_of(self.name),
                max_rows=most // num_servers + (index < most % num_servers),
                eviction=Eviction(self.eviction),
                index=index,
                num_slots=num_servers,
            )
            for index in range(num_servers)
        ]

    def digest(self) -> bytes:
        """Return 32 bytes that differ when any of the options do."""
        return hashlib.sha256(repr(astuple(self)).encode()).digest()

    def initial(self) -> dict[str, object]:
        """Return all that decides what rows are before their first update, as plain data."""
        return {
            "name": self.name,
            "dim": self.dim,
            "dtype": self.wire_dtype.value,
            "init": self.init,
            "scale": float(self.scale),
            "seed": self.seed,
        }


def _check_int(what: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{what} must be an integer from {low} to {high}, got {value!r:.60}")


def _check_choice(what: str, value: object, valid: list[str]) -> None:
    if value not in valid:
        raise ConfigError(f"{what} must be one of {', '.join(valid)}; got {value!r:.60}")
