"""What a relay's messages refuse, and the bytes that follow them."""

import pytest
from tests.wire.samples import SAMPLES

from bireme.errors import ConfigError
from bireme.types import DType
from bireme.wire.relay import Handover, JointPush


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [("Handover", 64), ("Handover, mixed", 4), ("JointPush", 64), ("Declined", 0)],
)
def test_payload_sizes(name, size_bytes):
    assert SAMPLES[name].payload_size() == size_bytes


def joint(*, span=(0, 2), weights=(1.0, 1.0), weighed=True):
    return JointPush(0, 1, 0, *span, weights, weighed, False, False, 0, 0, ())


def test_weights_are_finite():
    with pytest.raises(ConfigError, match="finite"):
        Handover(0, 1, 0, DType.FLOAT32, 0, float("nan"), False, False, 0, 0, ())
    for weights in ((), (1.0, float("inf"))):
        with pytest.raises(ConfigError, match="finite"):
            joint(weights=weights)


def test_a_joint_push_covers_a_shard():
    with pytest.raises(ConfigError, match="covers no shard"):
        joint(span=(2, 2))


def test_a_sum_of_several_has_been_weighed():
    with pytest.raises(ConfigError, match="weighed"):
        joint(weighed=False)
    joint(weights=(0.5,), weighed=False)
