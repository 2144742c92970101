"""What becomes of exceptions that a server's arithmetic should never raise."""

import pytest
from tests.core.nodes import initialise, push, running_server, sent

from bireme.core.defects import describe_defect, refusal_of
from bireme.core.events import Received
from bireme.errors import ConfigError, JobError
from bireme.sim.values import FloatValues, unpack
from bireme.wire.messages import (
    Ack,
    Command,
    CommandKind,
    Fault,
    FaultCode,
    Leave,
    Pull,
    PullEntry,
    PullRows,
    Value,
)


class Broken(FloatValues):
    """Arithmetic one of whose methods fails once, before or after it has done its work."""

    def fail_at(self, method, *, late=False):
        inner = getattr(self, method)

        def fail(*args):
            setattr(self, method, inner)
            if late:
                inner(*args)
            raise RuntimeError("bad kernel")

        setattr(self, method, fail)


@pytest.fixture
def values():
    return Broken()


@pytest.fixture
def core(values):
    core = running_server(2, values)
    initialise(core)
    return core


def complete_a_round(core, number=0):
    core.handle(push(0, number, 1.0, request=50), 0.0)
    return core.handle(push(1, number, 2.0, request=51), 0.0)


def pull(least, request=60):
    return Received(10, Pull(request, 1, least, 0, (PullEntry(0, 0, 0),)))


@pytest.mark.parametrize("method", ["check_push", "first"])
def test_a_push_that_fails_before_it_changes_anything_is_refused(core, values, method):
    values.fail_at(method)
    (fault,) = sent(core.handle(push(0, 0, 1.0, request=3), 0.0))
    assert fault.code is FaultCode.INTERNAL
    assert fault.request == 3
    assert "its values are as they were: RuntimeError: bad kernel (test_defects.py:" in fault.text
    # A late duplicate of it does not count; the next push has its number.
    assert sent(core.handle(push(0, 0, 1.0, request=3), 0.0), Ack) == []
    assert len(sent(complete_a_round(core), Ack)) == 2
    assert values.cells[0, 0].value == [3.0]


def test_a_first_value_that_cannot_be_taken_is_refused(values):
    core = running_server(2, values)
    values.fail_at("initialise")
    (fault,) = sent(initialise(core))
    assert fault.code is FaultCode.INTERNAL
    assert [each.key_id for each in fault.entries] == [0]
    assert len(sent(initialise(core), Ack)) == 1
    assert len(sent(complete_a_round(core), Ack)) == 2


def test_pulls_that_fail_are_refused(core, values):
    complete_a_round(core)
    values.fail_at("read")
    (fault,) = sent(core.handle(pull(1), 0.0))
    assert (fault.code, fault.request) == (FaultCode.INTERNAL, 60)
    values.fail_at("read_rows")
    rows = PullRows(61, 1, 0, 0, 1, 0)
    (fault,) = sent(core.handle(Received(10, rows), 0.0))
    assert (fault.code, fault.request) == (FaultCode.INTERNAL, 61)
    (value,) = core.handle(pull(1), 0.0)
    assert isinstance(value.message, Value)
    assert unpack(value.payload[0]) == [3.0]


def test_a_pull_that_waited_is_refused_alone(core, values):
    core.handle(pull(1), 0.0)
    values.fail_at("read")
    messages = sent(complete_a_round(core))
    assert [each.code for each in messages if isinstance(each, Fault)] == [FaultCode.INTERNAL]
    assert len([each for each in messages if isinstance(each, Ack)]) == 2


def test_states_that_cannot_be_read_are_refused(core, values):
    values.fail_at("command")
    save = Command(70, 1, 0, CommandKind.SAVE_STATE, {"slots": []})
    (fault,) = sent(core.handle(Received(10, save), 0.0))
    assert (fault.code, fault.request) == (FaultCode.INTERNAL, 70)
    assert len(sent(complete_a_round(core), Ack)) == 2


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("method", ["add", "finish"])
def test_a_sum_that_is_lost_half_way_ends_the_job_by_name(core, values, method, late):
    values.fail_at(method, late=late)
    messages = sent(complete_a_round(core))
    (leave,) = [each for each in messages if isinstance(each, Leave)]
    assert "may be wrong after an error that nobody foresaw: RuntimeError: bad" in leave.reason
    assert not [each for each in messages if isinstance(each, Ack)]
    # Nobody is served any more with what may be wrong.
    assert core.handle(pull(0), 0.0) == []


def test_a_command_that_fails_half_way_ends_the_job_by_name(core, values):
    values.fail_at("command")
    command = Command(70, 1, 0, CommandKind.SET_OPTIMIZER, {"name": "SGD"})
    (leave,) = sent(core.handle(Received(10, command), 0.0))
    assert isinstance(leave, Leave)
    assert "bad kernel" in leave.reason


def test_errors_on_purpose_are_passed_on_as_they_are():
    error = ConfigError("a rate of -1")
    assert refusal_of(error) is error
    assert isinstance(refusal_of(KeyError("w")), JobError)
    assert describe_defect(KeyError("w")).endswith("KeyError: 'w'")
