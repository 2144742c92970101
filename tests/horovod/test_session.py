import threading
import time

import pytest
import torch

from bireme.errors import ConfigError
from bireme.horovod.common.exceptions import HorovodInternalError, NotInitialized
from bireme.horovod.session import Session


def test_a_session_starts_once_and_again_after_its_end():
    session = Session(lambda: {})
    assert not session.is_up
    with pytest.raises(NotInitialized):
        _ = session.topology
    assert session.start()
    assert not session.start()
    assert session.topology.size == 1
    for _ in range(150):
        session.stop()
        session.stop()
        assert not session.is_up
        assert session.start()
    session.stop()


def test_the_environment_is_read_at_every_start():
    env = {"HOROVOD_TIMELINE": "a"}
    session = Session(lambda: dict(env))
    session.start()
    env["HOROVOD_TIMELINE"] = "b"
    assert session.env["HOROVOD_TIMELINE"] == "a"
    session.stop()
    session.start()
    assert session.env["HOROVOD_TIMELINE"] == "b"
    session.stop()


def test_a_contradicting_environment_is_a_value_error():
    with pytest.raises(ConfigError, match="HOROVOD_SIZE is not"):
        Session(lambda: {"HOROVOD_RANK": "0"}).start()


def test_a_job_that_cannot_meet_is_an_internal_error():
    unreachable = {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "HOROVOD_START_TIMEOUT": "0.3",
    }
    with pytest.raises(HorovodInternalError, match=r"rank 1 cannot reach rank 0 within 0.3 s"):
        Session(lambda: unreachable).start()


def test_unnamed_operations_are_counted_by_kind_and_set_and_anew_after_a_restart():
    session = Session(lambda: {})
    session.start()
    names = [session.name_of("allreduce", None, which) for which in (0, 0, 3)]
    assert names == ["allreduce.noname.0", "allreduce.noname.1", "allreduce.noname.0"]
    assert session.name_of("allgather", None, 0) == "allgather.noname.0"
    assert session.name_of("allgather", "x", 0) == "allgather.x"
    session.stop()
    session.start()
    assert session.name_of("allreduce", None, 0) == "allreduce.noname.0"
    session.stop()


def test_an_operation_that_is_refused_does_not_count():
    session = Session(lambda: {})
    names = []
    for is_refused in (False, True, True, False):
        names.append(session.name_of("allreduce", None, 0))
        if is_refused:
            session.uncount("allreduce", None, 0)
            session.uncount("allreduce", "x", 0)
    assert [name.rpartition(".")[2] for name in names] == ["0", "1", "1", "1"]


def test_what_is_pending_is_forgotten_at_the_end():
    session = Session(lambda: {})
    session.start()
    handle = session.engine.barrier()
    number = session.number_of((handle, bool, torch.ones(1)))
    assert session.pending[number][0] is handle
    session.stop()
    assert session.pending == {}


def test_each_submission_is_dated_by_the_clock_of_its_own_thread(monkeypatch):
    session = Session(lambda: {})
    session.start()
    monkeypatch.setattr("bireme.horovod.session._TICK_S", float("inf"))
    handle = session.engine.barrier()
    dates = []

    def submit():
        session.number_of((handle, bool, None))
        dates.append((session._latest[2], time.thread_time()))

    submit()
    other = threading.Thread(target=submit)
    other.start()
    other.join(10)
    session.stop()
    # A new thread has used next to nothing, the first one has imported torch.
    assert dates[1][0] <= dates[1][1] < dates[0][0]
