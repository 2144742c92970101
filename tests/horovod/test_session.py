import threading
import time

import numpy as np
import pytest
import torch

from bireme.collective import Handle, ReduceOp
from bireme.errors import ConfigError
from bireme.horovod.common.exceptions import HorovodInternalError, NotInitialized
from bireme.horovod.session import Repeat, Session


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
    number = session.number_of((0, "a"), (handle, bool, torch.ones(1)))
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
        session.number_of((0, "a"), (handle, bool, None))
        dates.append((session._latest[2], time.thread_time()))

    submit()
    other = threading.Thread(target=submit)
    other.start()
    other.join(10)
    session.stop()
    # A new thread has used next to nothing, the first one has imported torch.
    assert dates[1][0] <= dates[1][1] < dates[0][0]


class Knowing:
    """An engine that knows every operation."""

    def __init__(self):
        self.asked = []

    def allreduce_again(self, key, tensor, out, how):
        self.asked.append((key, tensor, out, how))
        return Handle(1, key[1])

    def close(self):
        pass


HOW = (ReduceOp.SUM, (1.0, 0.5))
ARGUMENTS = (None, 1, 1.0, 0.5)


@pytest.fixture
def knowing():
    session = Session(lambda: {})
    session._engine = Knowing()
    session.remember(("w", 0, ARGUMENTS), Repeat((0, "allreduce.w"), HOW))
    return session


def test_what_has_been_submitted_is_submitted_again(knowing):
    tensor = torch.ones(2)
    number = knowing.submit_again(("w", 0, ARGUMENTS), tensor)
    assert knowing.pending[number][0].name == "allreduce.w"
    ((key, sent, out, how),) = knowing._engine.asked
    assert (key, how) == ((0, "allreduce.w"), HOW)
    assert sent is out is tensor


@pytest.mark.parametrize(
    ("name", "process_set", "arguments"),
    [
        ("v", 0, ARGUMENTS),
        (None, 0, ARGUMENTS),
        (["w"], 0, ARGUMENTS),
        ("w", 1, ARGUMENTS),
        ("w", None, ARGUMENTS),
        ("w", 0, (True, *ARGUMENTS[1:])),
        ("w", 0, (None, 2, *ARGUMENTS[2:])),
        ("w", 0, (None, 1, torch.ones(2), 0.5)),
        ("w", 0, (None, 1, np.ones(2), 0.5)),
        ("w", 0, (None, 1, 1.0, 0.25)),
    ],
)
def test_what_differs_is_not_submitted_again(knowing, name, process_set, arguments):
    assert knowing.submit_again((name, process_set, arguments), torch.ones(2)) is None
    assert not knowing._engine.asked


def test_a_name_of_this_moment_and_those_of_another_job_are_looked_at(knowing):
    engine = knowing._engine
    assert knowing.submit_again(("w", 0, ARGUMENTS), torch.ones(2)) is not None
    assert knowing.submit_again(("w", 0, ARGUMENTS), torch.ones(2)) is None
    knowing.forget_latest()
    assert knowing.submit_again(("w", 0, ARGUMENTS), torch.ones(2)) is not None
    knowing.stop()
    knowing._engine = engine
    assert knowing.submit_again(("w", 0, ARGUMENTS), torch.ones(2)) is None


def test_names_that_are_used_once_do_not_gather_without_end(knowing):
    for number in range(10_000):
        repeat = Repeat((0, f"allreduce.{number}"), HOW)
        knowing.remember((f"{number}", 0, ARGUMENTS), repeat)
    assert len(knowing._repeats) < 5000
    assert knowing.submit_again(("9999", 0, ARGUMENTS), torch.ones(2)) is not None


def test_one_name_in_two_sets_is_two_operations(knowing):
    knowing.remember(("w", 1, ARGUMENTS), Repeat((1, "allreduce.w"), HOW))
    for process_set in (0, 1):
        assert knowing.submit_again(("w", process_set, ARGUMENTS), torch.ones(2)) is not None
    assert knowing.name_of("allreduce", "w", 0) == "allreduce.w"
    with pytest.raises(ConfigError, match="under way already"):
        knowing.name_of("allreduce", "w", 1)
