"""Bodies of plain data, and the ranges that all messages share."""

import pytest
from hypothesis import given
from tests.wire.strategies import PLAIN

from bireme.errors import ConfigError
from bireme.wire.schema import check_plain


@given(PLAIN)
def test_plain_data_is_taken(value):
    check_plain({"value": value})


@pytest.mark.parametrize("value", [1j, {1}, object(), print, {"a": [b"", bytearray()]}])
def test_other_types_are_refused(value):
    with pytest.raises(ConfigError, match="plain data only"):
        check_plain({"value": value})


@pytest.mark.parametrize("value", [{1: 2}, [{None: 0}], {b"a": 1}])
def test_keys_are_strings(value):
    with pytest.raises(ConfigError, match="are strings"):
        check_plain({"value": value})


def nested(depth):
    value = None
    for _ in range(depth):
        value = [value]
    return {"value": value}


def test_nesting_has_a_limit():
    check_plain(nested(14))
    with pytest.raises(ConfigError, match="16 deep"):
        check_plain(nested(15))
    with pytest.raises(ConfigError, match="16 deep"):
        check_plain(nested(100_000))
