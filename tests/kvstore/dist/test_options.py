import contextlib

import pytest
import torch
from tests.integration.jobs import run_threads

from bireme import kvstore
from bireme.errors import ConfigError, StateError, WaitTimeout
from bireme.kvstore.dist.options import DIST_TYPES, DistOptions, dist_options
from bireme.types.choices import Consistency
from bireme.update import OptimizerSpec


def test_a_bound_that_the_script_does_not_name_is_the_jobs():
    assert dist_options("dist_bounded", {}, staleness=7) == DistOptions(staleness=7)
    assert dist_options("dist_bounded", {"staleness": None}, staleness=7).staleness == 7
    assert dist_options("dist_bounded_device", {"staleness": 0}, staleness=7).staleness == 0
    assert dist_options("dist_sync", {}, staleness=7).staleness == 0


@pytest.mark.parametrize("value", [-1, 1.0, True, "2", 1 << 21])
def test_a_staleness_out_of_range(value):
    with pytest.raises(ConfigError, match="staleness must be an integer >= 0"):
        kvstore.create("dist_bounded", staleness=value)


@pytest.mark.parametrize("kind", [kind for kind in DIST_TYPES if "bounded" not in kind])
def test_other_types_take_no_staleness(kind):
    with pytest.raises(ConfigError, match="got staleness"):
        kvstore.create(kind, staleness=1)


@pytest.mark.parametrize("value", [-1, float("nan"), True, "0.1"])
def test_a_compensation_out_of_range(value):
    with pytest.raises(ConfigError, match="delay_compensation must be a finite number"):
        kvstore.create("dist_async", delay_compensation=value)


def test_compensation_is_for_late_gradients():
    with pytest.raises(ConfigError, match="takes no options"):
        kvstore.create("dist_sync", delay_compensation=0.1)
    with pytest.raises(ConfigError, match="no gradient is late"):
        kvstore.create("dist_bounded", staleness=0, delay_compensation=0.1)
    options = dist_options("dist_async", {"delay_compensation": 1}, staleness=2)
    assert options == DistOptions(delay_compensation=1.0)


def test_what_a_type_takes_is_said():
    with pytest.raises(ConfigError, match="takes only staleness, delay_compensation, got stale"):
        kvstore.create("dist_bounded", stale=1)


def test_the_environment_names_a_bound(monkeypatch):
    monkeypatch.setenv("BIREME_STALENESS", "5")
    with kvstore.create("dist_bounded") as store:
        assert store.staleness == 5
    monkeypatch.setenv("BIREME_STALENESS", "-5")
    with pytest.raises(ConfigError, match="BIREME_STALENESS must be >= 0"):
        kvstore.create("dist_bounded")


def test_a_bounded_store_needs_an_optimizer_unless_its_bound_is_0():
    with kvstore.create("dist_bounded", staleness=1) as store:
        store.init("w", torch.zeros(2))
        with pytest.raises(StateError, match="call set_optimizer"):
            store.push("w", torch.ones(2))
    with kvstore.create("dist_bounded", staleness=0) as store:
        store.init("w", torch.zeros(2))
        store.push("w", torch.ones(2))
        assert store.pull("w").tolist() == [1, 1]


def test_every_worker_names_the_same_bound():
    def work(session):
        rank = session._client.rank
        with session.store("dist_bounded", DistOptions(staleness=1 + rank)) as store:
            try:
                store.init("w", torch.zeros(2))
            except ConfigError as error:
                return str(error)
            return ""

    (text,) = [text for text in run_threads(2, 1, work) if text]
    assert "bounded with staleness 1" in text
    assert "bounded with staleness 2" in text


def test_a_wait_names_the_slowest_and_ends_when_it_has_caught_up():
    def work(session):
        store = session.store("dist_bounded", DistOptions(staleness=1))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}, rescale_grad=-1.0))
        store.init("w", torch.zeros(2))
        text = ""
        if store.rank == 0:
            store.push("w", torch.ones(2))
            store.push("w", torch.ones(2))
            with pytest.raises(WaitTimeout) as caught:
                store.pull("w")
            text = str(caught.value)
        store.barrier()
        if store.rank == 1:
            store.push("w", torch.ones(2))
        assert patient_pull(store)[0] in ((2, 3) if store.rank == 1 else (3,))
        store.barrier()
        store.close()
        return text

    text, _ = run_threads(2, 1, work, pull_timeout_s=1.0)
    assert "a pull of key 'w' took longer than 1 s" in text
    assert "W[1] missing" in text


def patient_pull(store):
    """Pull however long it takes: the job's limit is short for the sake of one that never comes."""
    while True:
        with contextlib.suppress(WaitTimeout):
            return store.pull("w")


def test_every_model_is_offered():
    assert {consistency for consistency, _ in DIST_TYPES.values()} == set(Consistency)
