import pytest

from bireme.errors import ConfigError
from bireme.kvstore.dist.launched import Launched


def test_without_a_launcher_every_store_is_a_job_of_its_own():
    launched = Launched()
    first, second = launched.create("dist_sync", {}), launched.create("dist_async", {})
    assert (first.num_workers, second.num_workers) == (1, 1)
    first.close()
    second.barrier()
    second.close()
    launched.serve({})


def test_an_environment_that_is_incomplete():
    with pytest.raises(ConfigError):
        Launched().create("dist_sync", {"BIREME_ROLE": "worker"})
    with pytest.raises(ConfigError):
        Launched().serve({"BIREME_ROLE": "queen"})
