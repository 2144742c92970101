"""Collectives' settings: Horovod's names and ours."""

import pytest

from bireme.errors import ConfigError
from bireme.settings.collective import CollectiveSettings


def test_defaults_are_horovods():
    settings = CollectiveSettings.from_env({})
    assert settings == CollectiveSettings()
    assert settings.fusion_bytes == 134217728
    assert settings.cache_capacity == 1024
    assert settings.stall_warning_s == 60
    assert settings.stall_shutdown_s == 0


def test_horovods_names_are_read_and_ours_come_first():
    mapping = {
        "HOROVOD_FUSION_THRESHOLD": "64",
        "HOROVOD_CACHE_CAPACITY": "7",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "2",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "5",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "9",
        "BIREME_FUSION_THRESHOLD": "4 MiB",
        "BIREME_CPU_BACKEND": "gloo",
        "UNRELATED": "x",
    }
    settings = CollectiveSettings.from_env(mapping)
    assert settings.fusion_bytes == 4 << 20
    assert settings.cache_capacity == 7
    assert (settings.stall_warning_s, settings.stall_shutdown_s) == (2, 5)
    assert settings.start_timeout_s == 9
    assert settings.cpu_backend == "gloo"


def test_the_stall_check_may_be_switched_off():
    mapping = {"HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "5"}
    settings = CollectiveSettings.from_env(mapping)
    assert (settings.stall_warning_s, settings.stall_shutdown_s) == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [{"fusion_bytes": -1}, {"start_timeout_s": 0}, {"stall_warning_s": 0, "stall_shutdown_s": 1}],
)
def test_refuses_values_out_of_bounds(fields):
    with pytest.raises(ConfigError):
        CollectiveSettings(**fields)
