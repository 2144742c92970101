"""Process groups by the name of their backend."""

from datetime import timedelta

import pytest
from torch import distributed
from torch.distributed import HashStore

from bireme.collective.backend_names import make_process_group
from bireme.errors import ConfigError

LIMIT = timedelta(seconds=10)


def test_gloo_by_name():
    group = make_process_group("gloo", HashStore(), 0, 1, LIMIT)
    assert isinstance(group, distributed.ProcessGroupGloo)
    assert not distributed.is_initialized()


def test_registered_backends_by_name():
    made = []

    def create(store, rank, size, timeout):
        made.append((rank, size, timeout))
        return "group"

    distributed.Backend.register_backend("test_of_names", create, devices=["cpu"])
    try:
        assert make_process_group("test_of_names", HashStore(), 1, 2, LIMIT) == "group"
        assert made == [(1, 2, LIMIT)]
    finally:
        del distributed.Backend._plugins["TEST_OF_NAMES"]


@pytest.mark.skipif(distributed.is_nccl_available(), reason="this build has NCCL")
@pytest.mark.parametrize("name", ["nccl", "none-such"])
def test_others_are_refused(name):
    with pytest.raises(ConfigError, match=f"no backend '{name}'"):
        make_process_group(name, HashStore(), 0, 1, LIMIT)
