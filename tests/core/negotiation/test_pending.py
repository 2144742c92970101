"""Masks of slots by rank."""

from bireme.core.negotiation.pending import Pending


def test_what_is_submitted_is_there_until_it_is_taken_or_cleared():
    pending = Pending(3)
    pending.add(0, 0b0110)
    pending.add(0, 0b1000)
    pending.add(2, 0b0100)
    assert [pending.ranks_of(slot) for slot in range(4)] == [[], [0], [0, 2], [0]]
    assert pending.elsewhere(2, 0)
    assert not pending.elsewhere(3, 0)
    assert pending.union() == 0b1110
    assert pending.union((1, 2)) == 0b0100
    assert pending.common(0b1111, (0, 2), but=()) == 0b0100
    assert pending.common(0b1111, (0, 1, 2), but=(1, 2)) == 0b1110
    assert pending.take(0, 0b0010)
    assert not pending.take(0, 0b0010)
    pending.clear((0, 1), 0b1100)
    assert pending.union() == 0b0100
