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


def test_a_worker_of_a_job_without_servers():
    environ = {"BIREME_ROLE": "worker", "BIREME_NUM_WORKERS": "2", "BIREME_SECRET": "s" * 16}
    launched = Launched()
    launched.serve(environ)
    with pytest.raises(ConfigError, match="started without BIREME_NUM_SERVERS"):
        launched.create("dist_sync", environ)


def test_a_server_that_runs_the_script_says_so(caplog):
    launched = Launched()
    for environ in ({}, {"BIREME_ROLE": "worker"}, {"DMLC_ROLE": "worker"}):
        launched.tell_if_idle("local", environ)
    assert caplog.messages == []
    launched.tell_if_idle("local", {"DMLC_ROLE": "server"})
    (said,) = caplog.messages
    assert "is to be a server" in said
    assert "a 'local' store needs no servers" in said
