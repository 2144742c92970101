from bireme.core.gathering import Bundle
from bireme.core.tree import Tree
from bireme.core.turns import Turns
from bireme.sim.relaying import FloatSums
from bireme.types.dtypes import DType
from bireme.wire.messages import Handover, PushEntry


def push(number, *keys, rank=0):
    entries = tuple(PushEntry(key, 0, 0, 8) for key in keys)
    return Handover(1, 1, 0, DType.FLOAT64, rank, 1.0, False, True, number, 0, entries)


class Table:
    """Turns, with bundles that are open until they are said to be sent or over."""

    def __init__(self):
        self.turns = Turns()

    def hand(self, message):
        """Return the bundle that takes a push, or what :meth:`Turns.admit` says against it."""
        bundle = self.turns.find(message)
        if bundle is not None:
            return bundle
        is_late, conflicting = self.turns.admit(message)
        for each in conflicting:
            self.turns.close(each)
        if is_late:
            return "late"
        bundle = Bundle(message, 0.0, Tree(2), FloatSums())
        self.turns.open(message, bundle)
        return bundle

    def send(self, bundle):
        bundle.pieces = []

    def end(self, bundle):
        self.turns.close(bundle)


def test_the_same_slots_and_round_share_a_bundle():
    table = Table()
    bundle = table.hand(push(0, 1, 2))
    assert table.hand(push(0, 1, 2, rank=1)) is bundle
    assert list(table.turns.open_bundles()) == [bundle]
    table.send(bundle)
    assert list(table.turns.open_bundles()) == []
    assert list(table.turns.bundles()) == [bundle]


def test_a_round_that_is_over_is_never_begun_again():
    table = Table()
    table.end(table.hand(push(0, 1)))
    assert table.hand(push(0, 1)) == "late"
    bundle = table.hand(push(1, 1))
    assert isinstance(bundle, Bundle)
    assert table.hand(push(0, 1)) == "late"
    table.end(bundle)
    assert isinstance(table.hand(push(2, 1)), Bundle)


def test_other_company_ends_what_waits_and_is_refused_itself():
    table = Table()
    table.hand(push(0, 1, 2))
    assert table.hand(push(0, 1, rank=1)) == "late"
    assert list(table.turns.bundles()) == []
    assert table.hand(push(0, 2, rank=1)) == "late"
    assert table.hand(push(0, 1, 2)) == "late"
    # The next round is a new beginning, in whatever company.
    assert isinstance(table.hand(push(1, 1)), Bundle)
    assert isinstance(table.hand(push(1, 2)), Bundle)


def test_what_was_pushed_otherwise_while_a_bundle_was_under_way_is_past():
    table = Table()
    bundle = table.hand(push(0, 1, 2))
    table.send(bundle)
    # One worker has had its answer for key 1 and goes on with it alone.
    assert table.hand(push(1, 1)) == "late"
    table.end(bundle)
    # So must the others in that round, in the old company too.
    assert table.hand(push(1, 1, 2, rank=1)) == "late"
    assert isinstance(table.hand(push(2, 1, 2)), Bundle)


def test_a_later_round_of_the_same_slots_is_refused_while_one_is_under_way():
    table = Table()
    bundle = table.hand(push(0, 1, 2))
    table.send(bundle)
    assert table.hand(push(1, 1, 2)) == "late"
    table.end(bundle)
    assert table.hand(push(1, 1, 2, rank=1)) == "late"
    assert isinstance(table.hand(push(2, 1, 2)), Bundle)


def test_servers_are_told_apart():
    table = Table()
    table.hand(push(0, 1))
    other = Handover(1, 1, 1, DType.FLOAT64, 0, 1.0, False, True, 0, 0, (PushEntry(9, 0, 0, 8),))
    assert isinstance(table.hand(other), Bundle)
    assert len(list(table.turns.bundles())) == 2


def test_memory_does_not_grow_with_ever_new_company():
    table = Table()
    for number in range(40_000):
        table.hand(push(number, 1, 2 + number))
        for bundle in list(table.turns.bundles()):
            table.end(bundle)
    assert len(table.turns._plans) < 20_000
    assert len(table.turns._known) < 20_000
