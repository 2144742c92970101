from hypothesis import given
from hypothesis import strategies as st

from bireme.kvstore.placement import balance


def test_largest_first_to_the_least_loaded():
    assert balance({0: 1, 1: 10, 2: 4, 3: 5}, [0, 0]) == {1: 0, 3: 1, 2: 1, 0: 1}


def test_equal_sizes_take_turns_in_order():
    assert balance(dict.fromkeys("abcd", 8), [0, 0]) == {"a": 0, "b": 1, "c": 0, "d": 1}


def test_earlier_load_counts():
    assert balance({"a": 1}, [5, 0, 0]) == {"a": 1}


@given(
    st.dictionaries(st.integers(), st.integers(0, 10**9), min_size=1),
    st.integers(1, 8),
)
def test_loads_differ_by_at_most_one_value(sizes, num_devices):
    homes = balance(sizes, [0] * num_devices)
    assert set(homes) == set(sizes)
    loads = [0] * num_devices
    for key, position in homes.items():
        loads[position] += sizes[key]
    assert max(loads) - min(loads) <= max(sizes.values())
