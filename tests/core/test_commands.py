from bireme.core.commands import CommandLog
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
