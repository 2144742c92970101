from bireme.core.parked import Parked
from bireme.wire.messages import Push, PushEntry


def push(rank, request=0):
    entries = (PushEntry(0, 0, 0, 8), PushEntry(1, 0, 0, 8))
    return Push(request, 1, rank, rank, rank + 1, 1.0, False, False, 0, 0, entries)


def test_a_payload_is_held_once_and_let_go_after_its_last_entry():
    parked, payload, message = Parked(), object(), push(0)
    assert parked.push(5, message, message.entries[0], payload, 0)
    assert not parked.push(5, message, message.entries[1], payload, 8)
    for key, last in (((0, 0), False), ((1, 0), True)):
        (waiting,), _ = parked.take(key)
        assert parked.done_with(waiting.payload) is last
    assert parked.keys() == []


def test_a_repeated_push_only_changes_whom_to_answer():
    parked, first, again = Parked(), object(), object()
    assert parked.push(5, push(0, 1), push(0).entries[0], first, 0)
    assert not parked.push(6, push(0, 2), push(0).entries[0], again, 0)
    (waiting,), _ = parked.take((0, 0))
    assert waiting.payload is first
    assert (waiting.link, waiting.message.request) == (6, 2)


def test_pulls_are_kept_once_by_link_and_request():
    parked = Parked()
    parked.pull((0, 0), (5, 1), (0, 0, None, -1))
    parked.pull((0, 0), (5, 1), (0, 0, None, -1))
    assert parked.has_pull((0, 0), (5, 1))
    _, pulls = parked.take((0, 0))
    assert list(pulls) == [(5, 1)]


def test_a_push_without_payload_holds_nothing_and_lets_nothing_go():
    parked = Parked()
    for rank in (0, 1):
        entry = PushEntry(0, 0, 0, 0)
        assert not parked.push(5 + rank, push(rank), entry, None, 0)
    waiting, _ = parked.take((0, 0))
    assert [parked.done_with(each.payload) for each in waiting] == [False, False]
