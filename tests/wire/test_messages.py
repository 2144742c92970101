"""The table of messages is complete, and every number is unique for ever."""

from bireme.wire import control, data, messages
from bireme.wire.messages import MESSAGES, Kind, Message


def test_every_kind_has_one_message():
    assert set(MESSAGES) == set(Kind)
    assert len(set(MESSAGES.values())) == len(Kind)
    assert all(cls.kind == kind for kind, cls in MESSAGES.items())


def test_names_of_kinds_and_messages_agree():
    for kind, cls in MESSAGES.items():
        assert kind.name.replace("_", "").lower() == cls.__name__.lower()


def test_numbers_stay_below_the_transports():
    assert all(1 <= kind < 240 for kind in Kind)


def test_every_message_is_in_the_table():
    assert set(Message.__subclasses__()) == set(MESSAGES.values())


def test_everything_of_both_rooms_is_exported():
    assert set(control.__all__) | set(data.__all__) <= set(messages.__all__)
