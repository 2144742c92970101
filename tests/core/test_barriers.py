from bireme.core.barriers import Barriers


def test_a_repeated_arrival_counts_once():
    barriers = Barriers()
    barriers.arrive("b", 0, 0, 0.0)
    barriers.arrive("b", 0, 0, 0.5)
    assert list(barriers.complete([0, 1])) == []
    barriers.arrive("b", 0, 1, 1.0)
    assert list(barriers.complete([0, 1])) == [("b", 0, [0, 1])]
    assert list(barriers.complete([0, 1])) == []


def test_a_replacement_is_told_the_newest_number():
    barriers = Barriers()
    for number in range(3):
        barriers.arrive("b", number, 0, 0.0)
        list(barriers.complete([0]))
    assert barriers.done("b", 0) == 2
    assert barriers.done("b", 3) is None


def test_a_departure_opens_what_only_waited_for_it():
    barriers = Barriers()
    barriers.arrive("b", 0, 0, 0.0)
    assert barriers.report([0, 1], 2.0) == [
        {"name": "b", "number": 0, "missing": [1], "waiting_s": 2.0}
    ]
    assert list(barriers.complete([0])) == [("b", 0, [0])]
