import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.strategies import structs

from bireme.errors import ConfigError
from bireme.types.choices import Eviction, Initialiser
from bireme.types.dtypes import DType
from bireme.wire.tables import TableSpec, decode_table, encode_table

SPEC = TableSpec(
    dim=16,
    dtype=DType.FLOAT64,
    initialiser=Initialiser.UNIFORM,
    scale=0.25,
    seed=7,
    stream=2**63 - 1,
    max_rows=1000,
    eviction=Eviction.LFU,
    index=1,
    num_slots=3,
)
GOLDEN = (
    "9a10a7666c6f61743634a7756e69666f726dcb3fd000000000000007cf7fffffffffffffffcd03e8a36c66750103"
)


def test_golden_bytes():
    assert encode_table(SPEC).hex() == GOLDEN
    assert decode_table(bytes.fromhex(GOLDEN)) == SPEC


@given(structs(TableSpec))
def test_round_trip(spec):
    assert decode_table(memoryview(encode_table(spec))) == spec


@given(st.binary(max_size=80))
def test_other_bytes_are_refused_in_one_way(raw):
    try:
        spec = decode_table(raw)
    except ConfigError:
        return
    assert decode_table(encode_table(spec)) == spec


@given(st.integers(0, len(GOLDEN) // 2 - 1), st.integers(1, 255))
def test_damaged_bytes_are_refused_or_another_valid_table(position, flip):
    raw = bytearray.fromhex(GOLDEN)
    raw[position] ^= flip
    try:
        assert 1 <= decode_table(bytes(raw)).dim <= 1 << 20
    except ConfigError:
        pass


@pytest.mark.parametrize(
    "change", [{"dim": 0}, {"scale": -1.0}, {"scale": float("nan")}, {"seed": 2**63}, {"index": -1}]
)
def test_what_no_server_would_take_is_not_encoded(change):
    fields = {name: getattr(SPEC, name) for name in SPEC.__struct_fields__} | change
    with pytest.raises(ConfigError, match="no table"):
        encode_table(TableSpec(**fields))
