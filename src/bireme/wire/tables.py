"""What a table is, in bytes: the payload with which a worker creates it on the servers.

Made by ``kvstore.tables`` and read by ``node.tables``. A table is a key of layout ``table`` with
one slot on every server. Its ``Init`` carries this description in place of values; rows travel
in ``Push``, ``PullRows`` and ``Rows`` as those of any key, by their ids.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from bireme.errors import ConfigError
from bireme.types.choices import Eviction, Initialiser
from bireme.types.dtypes import DType

__all__ = ("MOST_DIM", "TableSpec", "decode_table", "encode_table")

MOST_DIM = 1 << 20
"""Elements of one row."""

_Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**62)]


class TableSpec(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True
):
    """All that decides what the rows of a table are.

    Guarantees:
        A row that was never updated is a function of ``seed``, ``stream``, ``initialiser``,
        ``scale``, ``dim`` and its id alone: not of the server, the worker or the moment.
    """

    dim: Annotated[int, Meta(ge=1, le=MOST_DIM)]
    """Elements of a row."""
    dtype: DType = DType.FLOAT32
    initialiser: Initialiser = Initialiser.NORMAL
    scale: Annotated[float, Meta(ge=0)] = 1.0
    seed: _Seed = 0
    stream: _Seed = 0
    """Tells tables with one seed apart; made of the table's name."""
    max_rows: _Count = 0
    """Rows of this slot; 0 for no limit."""
    eviction: Eviction = Eviction.REFUSE
    index: _Count = 0
    """Number of this slot among those of the table."""
    num_slots: Annotated[int, Meta(ge=1, le=2**31)] = 1


def encode_table(spec: TableSpec) -> bytes:
    """Return the payload that creates a table.

    Raises:
        ConfigError: A field is out of range.

    Example:
        >>> decode_table(encode_table(TableSpec(dim=3, scale=0.5))).scale
        0.5
    """
    try:
        raw = msgspec.msgpack.encode(spec)
        _DECODER.decode(raw)
    except (msgspec.MsgspecError, OverflowError, TypeError, ValueError) as error:
        raise ConfigError(f"no table can be like this: {error}") from error
    return raw


def decode_table(raw: bytes | memoryview) -> TableSpec:
    """Read what :func:`encode_table` made.

    Raises:
        ConfigError: The bytes are no description of a table.
    """
    try:
        return _DECODER.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"a description of a table cannot be read: {error}") from error


_DECODER = msgspec.msgpack.Decoder(TableSpec)
