import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.kvstore.keys import group, key_kind, to_keys

ONE = torch.ones(())


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (3, ([3], False)),
        ("a", (["a"], False)),
        ([3, 5], ([3, 5], True)),
        (("a",), (["a"], True)),
        (range(2), ([0, 1], True)),
        ([], ([], True)),
        (np.int64(3), ([3], False)),
        (np.str_("a"), (["a"], False)),
        (-1, ([-1], False)),
    ],
)
def test_to_keys(key, expected):
    keys, is_list = to_keys(key)
    assert (keys, is_list) == expected
    assert all(type(each) in (int, str) for each in keys)


@pytest.mark.parametrize("key", [True, np.bool_(True), 1.0, None, [1, None], [[1]], {1}, b"a"])
def test_no_key(key):
    with pytest.raises(ConfigError, match="integer or a string"):
        to_keys(key)


@pytest.mark.parametrize("keys", [[1, "a"], ["a", 1]])
def test_mixed_kinds_in_a_call(keys):
    with pytest.raises(ConfigError, match="mixed"):
        to_keys(keys)


def test_kind_is_the_first_calls_for_good():
    assert key_kind([1, 2], None) is int
    assert key_kind(["a"], str) is str
    with pytest.raises(ConfigError, match=r"integer, but .* string keys"):
        key_kind([1], str)
    with pytest.raises(ConfigError, match=r"string, but .* integer keys"):
        key_kind(["1"], int)


def test_one_key_takes_a_tensor_or_a_list():
    assert group([3], False, ONE) == {3: [ONE]}
    assert group([3], False, (ONE, ONE)) == {3: [ONE, ONE]}


def test_the_callers_list_is_not_kept():
    given_list = [ONE]
    groups = group([3, 3], True, [given_list, ONE])
    assert len(groups[3]) == 2
    assert len(given_list) == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ONE, "one item for each of the 2 keys, got one tensor"),
        ([ONE], "got 1 items"),
        ([ONE, ONE, ONE], "got 3 items"),
        (None, "NoneType"),
        ([ONE, []], "empty list"),
        ([ONE, None], "tensor or a list of tensors"),
        ([ONE, [[ONE]]], "only tensors"),
        ([ONE, [ONE, 2.0]], r"only tensors, got 2\.0"),
    ],
)
def test_wrong_values(value, message):
    with pytest.raises(ConfigError, match=message):
        group([3, 5], True, value)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1))
def test_repeated_keys_collect_in_order(items):
    keys = [key for key, _ in items]
    tensors = [
        [torch.tensor(place) for _ in range(count)] for place, (_, count) in enumerate(items)
    ]
    groups = group(keys, True, tensors)
    for key in set(keys):
        expected = [t for each, ts in zip(keys, tensors, strict=True) if each == key for t in ts]
        assert all(a is b for a, b in zip(groups[key], expected, strict=True))
