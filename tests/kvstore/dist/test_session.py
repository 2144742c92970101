import pytest
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
