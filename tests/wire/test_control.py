"""Control messages: defaults that the scheduler relies on, and what is refused."""

import pytest
from tests.wire.samples import SAMPLES

from bireme.errors import ConfigError
from bireme.types import DType
from bireme.wire.control import JobConfig, KeyDecl, Status
from bireme.wire.messages import MESSAGES, Kind


def test_control_messages_carry_no_payload():
    for kind, cls in MESSAGES.items():
        if kind < Kind.ATTACH:
            sample = next(each for each in SAMPLES.values() if type(each) is cls)
            assert sample.payload_size() == 0


def test_a_job_waits_for_nothing_for_ever():
    config = JobConfig(2, 1, 2)
    limits = [name for name in config.__struct_fields__ if name.endswith("_s")]
    assert len(limits) >= 8
    assert all(0 < getattr(config, name) <= 600 for name in limits)


def test_a_key_is_dense_sync_and_splittable_unless_told_otherwise():
    decl = KeyDecl("w", (3,), DType.FLOAT32)
    assert (decl.layout, decl.consistency, decl.splittable) == ("dense", "sync", True)


def test_a_report_is_plain_data():
    with pytest.raises(ConfigError, match="plain data only; got a complex"):
        Status(1, {"nodes": [{"age": 1j}]})
