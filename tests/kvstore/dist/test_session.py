import os

import pytest
import torch
from tests.integration.jobs import run_threads

from bireme.errors import StateError


def test_the_last_store_that_closes_leaves_the_job():
    def work(session):
        first, second = session.store("dist"), session.store("dist_async_device")
        assert first.type == "dist"
        first.close()
        first.close()
        second.barrier()
        second.close()
        return session

    (session,) = run_threads(1, 1, work)
    assert session.ended
    with pytest.raises(StateError, match="has left the job"):
        session.store("dist_sync")


def test_a_forked_process_cannot_use_the_stores_and_its_end_changes_nothing(monkeypatch):
    def work(session):
        store, other = session.store("dist"), session.store("dist")
        store.init("w", torch.ones(2))
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            with pytest.raises(StateError, match="was forked from the worker"):
                store.pull("w")
            with pytest.raises(StateError, match="create stores there only"):
                session.store("dist")
            other.close()
            session._at_exit()
        assert not session.ended
        assert store.pull("w").tolist() == [1, 1]
        store.close()
        session._store_closed()

    run_threads(1, 1, work)
