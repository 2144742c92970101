"""Silence is counted while one listens, and signs of life have a rhythm."""

from bireme.launch.contact import Contact


def test_who_was_never_heard_is_not_lost():
    contact = Contact(limit_s=10)
    assert not any(contact.is_lost(float(now_s)) for now_s in range(0, 100, 4))


def test_silence_beyond_the_limit():
    contact = Contact(limit_s=10)
    contact.heard(0.0)
    assert [contact.is_lost(now_s) for now_s in (4.0, 8.0, 10.0, 12.0)] == [False] * 3 + [True]
    contact.heard(12.0)
    assert not contact.is_lost(16.0)


def test_an_hour_in_which_this_process_was_stopped_does_not_count():
    contact = Contact(limit_s=10)
    contact.heard(0.0)
    assert not contact.is_lost(3600.0)
    assert not contact.is_lost(3604.0)
    assert [contact.is_lost(now_s) for now_s in (3608.0, 3612.0)] == [False, True]


def test_signs_of_life_come_every_five_seconds():
    contact = Contact(limit_s=10)
    due = [now_s for now_s in range(100, 121) if contact.owes_pulse(float(now_s))]
    assert due == [100, 105, 110, 115, 120]
