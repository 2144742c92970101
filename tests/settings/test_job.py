"""What a job wants survives the environment, and contradictions are refused."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.settings import JobSettings, TransportChoice
from bireme.settings.variables import variables
from bireme.types import DeathPolicy
from bireme.wire.messages import JobConfig

SECONDS = st.floats(0.001, 1e6)


@st.composite
def jobs(draw):
    seconds = {
        field.name: draw(SECONDS)
        for field in dataclasses.fields(JobSettings)
        if field.name.endswith("_timeout_s")
    }
    slice_bytes = draw(st.integers(1024, 1 << 20))
    return JobSettings(
        **seconds,
        heartbeat_interval_s=seconds["heartbeat_timeout_s"] / 4,
        death_policy=draw(st.sampled_from(DeathPolicy)),
        transport=draw(st.sampled_from(TransportChoice)),
        num_shards=draw(st.integers(0, 64)),
        slice_bytes=slice_bytes,
        payload_crc=draw(st.booleans()),
        allowed_optimizers=draw(st.sampled_from(["", "mypkg", "mypkg.optim:Lion, other"])),
    )


@given(jobs())
def test_the_environment_carries_everything(job):
    assert JobSettings.from_env(job.to_env()) == job


def test_defaults():
    job = JobSettings.from_env({})
    assert job == JobSettings()
    assert job.death_policy is DeathPolicy.ABORT
    assert JobSettings.from_env(job.to_env()) == job


def test_every_field_has_its_own_variable():
    names = [variable.name for variable in variables(JobSettings).values()]
    assert len(names) == len(set(names)) == len(dataclasses.fields(JobSettings))


def test_the_wire_has_the_same_defaults():
    config = JobConfig(2, 1, 2)
    job = JobSettings()
    for name in set(config.__struct_fields__) & {each.name for each in dataclasses.fields(job)}:
        # What is sent always; the bytes of a frame that leaves it out keep their meaning.
        if name not in ("num_shards", "slice_bytes"):
            assert getattr(config, name) == getattr(job, name), name


@pytest.mark.parametrize(
    ("mapping", "field", "value"),
    [
        ({"PS_HEARTBEAT_INTERVAL": "1", "PS_HEARTBEAT_TIMEOUT": "4"}, "heartbeat_interval_s", 1.0),
        ({"PS_HEARTBEAT_TIMEOUT": "4"}, "heartbeat_timeout_s", 4.0),
        ({"PS_HEARTBEAT_TIMEOUT": "0"}, "heartbeat_timeout_s", 20.0),
        ({"PS_RESEND_TIMEOUT": "2500"}, "resend_timeout_s", 2.5),
        (
            {"PS_RESEND_TIMEOUT": "2500", "BIREME_RESEND_TIMEOUT": "7"},
            "resend_timeout_s",
            7.0,
        ),
    ],
)
def test_names_of_ps_lite(mapping, field, value):
    assert getattr(JobSettings.from_env(mapping), field) == value


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"heartbeat_interval_s": 11.0}, "heartbeat_timeout_s must be at least twice"),
        ({"slice_bytes": 1 << 22, "max_payload_bytes": 1 << 21}, "slice_bytes must be <= max_pay"),
        ({"slice_bytes": 1 << 22, "window_bytes": 1 << 21}, "window_bytes must be >= slice_bytes"),
        ({"barrier_timeout_s": 0}, "barrier_timeout_s must be > 0, got 0"),
        ({"death_policy": "abort"}, "death_policy must be one of"),
    ],
)
def test_what_is_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        JobSettings(**fields)


def test_bundles_fit_into_messages_and_windows():
    assert JobSettings().bundle_bytes == 2 << 20
    assert JobSettings(slice_bytes=1 << 20, max_payload_bytes=1 << 20).bundle_bytes == 1 << 20
    assert JobSettings(slice_bytes=1 << 20, window_bytes=3 << 19).bundle_bytes == 3 << 19


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        JobSettings().slice_bytes = 1


def test_modules_of_optimizers():
    job = JobSettings.from_env({"BIREME_ALLOWED_OPTIMIZERS": " mypkg.optim, other:Lion ,"})
    assert job.importable_optimizers == {"mypkg.optim", "other:Lion"}
    for text in ("my-pkg", "a:b:c", "../x", "*", "a..b", ".a"):
        with pytest.raises(ConfigError, match="--allow-optimizer"):
            JobSettings(allowed_optimizers=text)
