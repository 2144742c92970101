import pytest

from bireme.core.slots import Crew


def test_shards_are_cut_among_ranks_in_order():
    crew = Crew(4, 8)
    assert [crew.span(rank) for rank in range(4)] == [(0, 2), (2, 4), (4, 6), (6, 8)]


def test_those_who_left_or_will_not_come_are_not_awaited():
    crew = Crew(4, 4)
    crew.set_members(lost=0b0010, left=0b1000, replaced=False)
    assert crew.awaited == 0b0101
    crew.set_members(lost=0b0010, left=0b1000, replaced=True)
    assert crew.awaited == 0b0111


@pytest.mark.parametrize(
    ("weights", "mean", "scale"),
    [
        ([1.0, 1.0, 1.0], False, (4.0, 3.0)),
        ([1.0, 1.0, 1.0], True, (1.0, 3.0)),
        ([0.0, 0.0, 0.0], True, (0.0, 1.0)),
        ([0.0, 0.0, 0.0], False, (1.0, 1.0)),
    ],
)
def test_the_lost_are_made_up_for(weights, mean, scale):
    crew = Crew(4, 4)
    crew.set_members(lost=0b1000, left=0, replaced=False)
    assert crew.scale(0b0111, weights, mean) == scale


def test_a_lost_rank_has_its_last_weight_and_counts_where_it_contributed():
    crew = Crew(2, 2)
    crew.weights[1] = 3.0
    crew.set_members(lost=0b10, left=0, replaced=False)
    assert crew.scale(0b01, [1.0], False) == (4.0, 1.0)
    assert crew.scale(0b11, [1.0, 3.0], False) == (1.0, 1.0)


def test_the_sum_of_weights_does_not_depend_on_their_order():
    crew = Crew(3, 3)
    weights = [0.1, 0.2, 0.3]
    assert crew.scale(0b111, weights, True) == crew.scale(0b111, weights[::-1], True)
