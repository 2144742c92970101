import json
import math
from collections import Counter, OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.errors import DataError, UnsupportedError
from bireme.train.trees import decode, encode

keys = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text("a.0#")
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("xyz")
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(nested)
def test_plain_values_survive_json(tree):
    again = decode(json.loads(json.dumps(encode(tree, {}))), {})
    assert again == tree
    assert repr(again) == repr(tree)


def test_tensors_survive_even_where_their_names_collide():
    tree = {
        "0": torch.ones(2),
        0: [torch.zeros(2, dtype=torch.int8)],
        "a": {"b": torch.ones(())},
        "a.b": torch.full((1,), 7.0),
    }
    tensors = {}
    code = encode(tree, tensors)
    assert len(tensors) == 4
    again = decode(json.loads(json.dumps(code)), tensors)
    assert torch.equal(again["0"], torch.ones(2))
    assert again[0][0].dtype == torch.int8
    assert again["a"]["b"].shape == ()
    assert again["a.b"].item() == 7


def test_copies_are_taken():
    value = torch.ones(2)
    tensors = {}
    encode([value], tensors)
    value.zero_()
    assert next(iter(tensors.values())).tolist() == [1, 1]


def test_containers_keep_their_kind():
    tree = {"milestones": Counter({30: 1, 60: 2}), "ordered": OrderedDict(a=1), "inf": math.inf}
    again = decode(json.loads(json.dumps(encode(tree, {}))), {})
    assert again == tree
    assert isinstance(again["milestones"], Counter)


@pytest.mark.parametrize("stranger", [print, object(), {1, 2}, b"x", {(1, 2): 3}])
def test_what_could_be_code_is_refused_by_its_place(stranger):
    with pytest.raises(UnsupportedError, match=r"state\.a"):
        encode({"a": stranger}, {})


@pytest.mark.parametrize(
    "json_value",
    [
        [1],
        {},
        {"list": 3},
        {"list": [], "dict": []},
        {"tensor": "absent"},
        {"pickle": []},
        {"dict": [[1]]},
        {"dict": [[[1], 2]]},
        {"dict": [7]},
    ],
)
def test_garbled_json_is_refused(json_value):
    with pytest.raises(DataError):
        decode(json_value, {})
