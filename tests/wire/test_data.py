"""Data messages say exactly how many bytes follow them."""

import pytest
from tests.wire.samples import SAMPLES

from bireme.errors import ConfigError
from bireme.wire.data import Command, CommandDone, CommandKind, Push


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("Init", 24),
        ("Push", 64),
        ("Value", 36),
        ("PullRows", 24),
        ("Rows", 12),
        ("Command", 0),
        ("Command, with payload", 16),
        ("CommandDone", 0),
        ("Ack", 0),
    ],
)
def test_payload_sizes(name, size_bytes):
    assert SAMPLES[name].payload_size() == size_bytes


@pytest.mark.parametrize("weight", [float("inf"), float("nan")])
def test_a_weight_is_finite(weight):
    with pytest.raises(ConfigError, match="finite"):
        Push(0, 1, 0, 0, 1, weight, False, False, 0, 0, ())


@pytest.mark.parametrize(("first", "end"), [(1, 1), (2, 1)])
def test_a_push_covers_a_shard(first, end):
    with pytest.raises(ConfigError, match="covers no shard"):
        Push(0, 1, 0, first, end, 1.0, False, False, 0, 0, ())


def test_commands_carry_plain_data():
    with pytest.raises(ConfigError, match="plain data"):
        Command(0, 1, 0, CommandKind.SET_OPTIMIZER, {"fn": print})
    with pytest.raises(ConfigError, match="plain data"):
        CommandDone(0, {"fn": {1, 2}})
