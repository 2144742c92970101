import pytest

from bireme.core.commands import MOST_WAITING, CommandLog
from bireme.errors import StateError
from bireme.wire.messages import Command, CommandKind


def change(number, rate=0.1):
    return Command(number, 1, 0, CommandKind.SET_HYPER_PARAMETERS, {"rate": rate})


def test_the_leaders_changes_count_and_the_others_are_kept():
    log = CommandLog()
    assert log.take(1, 1, change(3), leader=0) == "kept"
    assert log.take(0, 1, change(7), leader=0) == "do"
    assert log.take(0, 1, change(7), leader=0) == "repeated"
    assert log.take(0, 1, change(6), leader=0) == "repeated"


def test_a_new_incarnation_begins_anew():
    log = CommandLog()
    assert log.take(0, 1, change(7), leader=0) == "do"
    assert log.take(0, 2, change(0), leader=0) == "do"


def test_what_the_dead_leader_had_not_sent_is_carried_out_once():
    log, done = CommandLog(), []
    log.take(0, 1, change(0, 0.1), leader=0)
    for number, rate in enumerate((0.1, 0.2, 0.3)):
        log.take(1, 1, change(number, rate), leader=0)
    log.succeed(1, lambda command: done.append(command.body["rate"]))
    assert done == [0.2, 0.3]
    log.succeed(1, lambda command: done.append("again"))
    assert done == [0.2, 0.3]


def test_other_commands_are_done_for_anybody():
    log = CommandLog()
    save = Command(0, 1, 0, CommandKind.SAVE_STATE, {})
    assert log.take(2, 1, save, leader=0) == "do"


def optimizer(number, name="SGD", rate=0.1, store=0):
    body = {"name": name, "params": {"lr": rate}}
    return Command(number, 1, store, CommandKind.SET_OPTIMIZER, body)


def test_of_many_rates_of_one_optimizer_only_the_last_is_kept():
    log, done = CommandLog(), []
    for number in range(10 * MOST_WAITING):
        assert log.take(1, 1, optimizer(number, rate=float(number)), leader=0) == "kept"
    log.take(1, 1, optimizer(number + 1, store=2), leader=0)
    log.take(1, 1, optimizer(number + 2, "Adam"), leader=0)
    # The leader has come half as far.
    for each in range(5 * MOST_WAITING):
        assert log.take(0, 1, optimizer(each, rate=float(each)), leader=0) == "do"
    log.succeed(1, done.append)
    assert [each.store for each in done] == [0, 2, 0]
    assert [each.body["name"] for each in done] == ["SGD", "SGD", "Adam"]
    assert done[0].body["params"]["lr"] == 10.0 * MOST_WAITING - 1


def test_a_rank_cannot_run_ahead_without_end():
    log, done = CommandLog(), []
    for number in range(MOST_WAITING):
        log.take(1, 1, change(number), leader=0)
    for _ in range(2):
        with pytest.raises(StateError, match=r"W\[1\] has changed the training 256 times more"):
            log.take(1, 1, change(MOST_WAITING), leader=0)
    log.take(0, 1, change(0), leader=0)
    assert log.take(1, 1, change(MOST_WAITING), leader=0) == "kept"
    log.succeed(1, done.append)
    assert len(done) == MOST_WAITING
