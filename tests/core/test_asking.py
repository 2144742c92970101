"""Calls of a worker's user: what is refused at once, and what is asked of whom."""

import pytest
from tests.core.nodes import (
    FIRST_SERVER,
    TO_SCHEDULER,
    ack,
    entries,
    of,
    running_worker,
    sent,
)

from bireme.core.actions import Complete, Deliver, Fail, Send
from bireme.core.calls import (
    BarrierCall,
    CommandCall,
    DeclareCall,
    PullCall,
    PushCall,
    ResumeCall,
    RowsCall,
    StatusCall,
)
from bireme.core.events import Received, Tick
from bireme.errors import (
    ConfigError,
    UnknownKeyError,
    WaitTimeout,
)
from bireme.types.nodes import SCHEDULER, server, worker
from bireme.wire.messages import (
    Barrier,
    BarrierDone,
    Command,
    CommandDone,
    CommandKind,
    Pull,
    Push,
    Status,
)


def test_a_pull_sees_all_that_was_handed_in_before():
    core = running_worker()
    for call in (5, 6):
        core.handle(PushCall(call, entries(0), 10.0), 0.0)
    (pull,) = sent(core.handle(PullCall(7, ((0, 0), (1, 0)), 10.0), 0.0), Pull)
    assert [(e.key_id, pull.min_version + e.lead) for e in pull.entries] == [(0, 2), (1, 0)]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (PushCall(5, entries(7), 10.0), UnknownKeyError),
        (PushCall(5, entries(0, 0), 10.0), ConfigError),
        (PushCall(5, entries(0), 10.0, weight=-1.0), ConfigError),
        (PushCall(5, entries(0), 10.0, weight=float("nan")), ConfigError),
        (PullCall(5, ((0, 9),), 10.0), UnknownKeyError),
        (RowsCall(5, 9, 0, b"", 0, 0, 10.0), UnknownKeyError),
        (StatusCall(5, server(9), 10.0), ConfigError),
        (StatusCall(5, worker(1), 10.0), ConfigError),
        (ResumeCall(5, (9,), 10.0), UnknownKeyError),
        (
            CommandCall(5, 0, CommandKind.LOAD_STATE, {}, 10.0, {4: (b"", 0)}),
            ConfigError,
        ),
    ],
)
def test_a_wrong_call_fails_at_once_and_nothing_changes(call, error):
    core = running_worker()
    (fail,) = core.handle(call, 0.0)
    assert fail.call == 5
    assert isinstance(fail.error, error)
    (push,) = sent(core.handle(PushCall(6, entries(0), 10.0), 0.0), Push)
    assert push.round == 0


def test_nothing_to_do_is_done_at_once():
    core = running_worker()
    assert core.handle(PushCall(5, (), 10.0), 0.0) == [Complete(5)]
    assert core.handle(PullCall(6, (), 10.0), 0.0) == [Complete(6)]


def test_a_command_is_a_fence():
    core = running_worker()
    (push,) = sent(core.handle(PushCall(5, entries(0), 10.0), 0.0))
    command = CommandCall(6, 0, CommandKind.SET_OPTIMIZER, {"lr": 0.1}, 10.0)
    assert core.handle(command, 0.0) == []
    assert core.handle(PushCall(7, entries(1), 10.0), 0.0) == []
    (sent_command,) = sent(core.handle(ack(push.request, (0, 0, 0)), 0.0), Command)
    done = CommandDone(sent_command.number, {"ok": True})
    actions = core.handle(Received(FIRST_SERVER, done), 0.0)
    assert Complete(6, {0: ({"ok": True}, None)}) in actions
    assert sent(actions, Push)[0].entries[0].key_id == 1


def test_barriers_are_numbered_and_may_be_waited_for_again():
    core = running_worker()
    assert sent(core.handle(BarrierCall(5, "b", 1.0), 0.0)) == [Barrier("b", 0)]
    core.handle(Tick(), 1.0)
    (fail,) = of(core.handle(Tick(), 2.5), Fail)
    assert isinstance(fail.error, WaitTimeout)
    assert sent(core.handle(BarrierCall(6, "b", 9.0), 3.0)) == [Barrier("b", 0)]
    assert Complete(6) in core.handle(Received(TO_SCHEDULER, BarrierDone("b", 0)), 3.0)
    assert sent(core.handle(BarrierCall(7, "b", 9.0), 3.0)) == [Barrier("b", 1)]
    assert core.handle(Received(TO_SCHEDULER, BarrierDone("other", 5)), 3.0) == []


def test_status_of_scheduler_and_servers_can_be_asked():
    core = running_worker()
    for node, link in ((SCHEDULER, TO_SCHEDULER), (server(0), FIRST_SERVER)):
        (send,) = core.handle(StatusCall(5, node, 9.0), 0.0)
        assert send.link == link
        status = Status(send.message.request, {"fine": True})
        assert core.handle(Received(link, status), 0.0) == [Complete(5, {"fine": True})]


def test_declared_twice_is_the_same():
    core = running_worker()
    core.handle(PushCall(5, entries(0), 10.0), 0.0)
    (send,) = core.handle(DeclareCall(6, 0, (), 10.0), 0.0)
    assert isinstance(send, Send)
    assert of([], Deliver) == []


def test_rows_may_be_asked_for_as_they_are_after_a_later_push():
    core = running_worker()
    core.handle(PushCall(5, entries(0), 10.0), 0.0)
    for ahead, least in ((0, 1), (2, 3)):
        (ask,) = sent(core.handle(RowsCall(6 + ahead, 0, 0, b"", 0, 0, 9.0, ahead=ahead), 0.0))
        assert ask.min_version == least
