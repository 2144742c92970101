from hypothesis import given
from hypothesis import strategies as st

from bireme.consistency.base import mask_of, ranks_in


@given(st.sets(st.integers(0, 2000)))
def test_a_set_of_ranks_survives_the_round_trip(ranks):
    assert ranks_in(mask_of(ranks)) == sorted(ranks)
