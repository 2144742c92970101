import json

import pytest

from bireme.data.shard_state import ShardState, integer
from bireme.errors import ConfigError

GOOD = {
    "n": 20,
    "seed": 3,
    "shuffle": True,
    "drop_last": False,
    "epoch": 1,
    "earlier": [[[1, 1], [2, 1]]],
    "shares": [2, 1],
    "positions": [4, None],
}


def test_survives_json():
    assert ShardState.read(json.loads(json.dumps(GOOD))).to_dict() == GOOD


def test_counts_what_is_dealt():
    assert ShardState.read(GOOD).dealt() == 17
    assert ShardState.read(GOOD | {"drop_last": True}).dealt() == 15


def test_infers_the_parts_that_advance_in_step():
    assert ShardState.read(GOOD).all_positions() == (4, 2)
    assert ShardState.read(GOOD | {"positions": [4, 5]}).all_positions() == (4, 5)
    with pytest.raises(ConfigError, match="merge_states"):
        ShardState.read(GOOD | {"positions": [3, None]}).all_positions()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n": 0}, "n must be >= 1"),
        ({"n": "20"}, "'20'"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"epoch": 1.5}, "epoch must be an integer, got 1.5"),
        ({"epoch": True}, "True"),
        ({"shuffle": 1}, "shuffle must be True or False"),
        ({"drop_last": None}, "drop_last"),
        ({"earlier": 3}, "earlier must be a list"),
        ({"earlier": [[[1, 1]]]}, r"\[shares, positions\]"),
        ({"earlier": [[[1, 1], [2]]]}, "2 shares but 1 positions"),
        ({"earlier": [[[1, 1], [11, 2]]]}, "part 0 cannot be at 11: it has 10"),
        ({"shares": []}, "positions must hold 0|empty"),
        ({"shares": [0, 1]}, "shares must be >= 1"),
        ({"positions": [1]}, "2 entries"),
        ({"positions": [None, None]}, "one of them known"),
        ({"positions": [-1, None]}, "a position"),
        ({"positions": [13, None]}, "part 0 cannot be at 13: it has"),
        ({"more": 1}, "more"),
    ],
)
def test_refuses_what_is_no_state(changes, says):
    with pytest.raises(ConfigError, match=says):
        ShardState.read(GOOD | changes)


def test_refuses_other_things():
    with pytest.raises(ConfigError, match="got list"):
        ShardState.read([1, 2])
    with pytest.raises(ConfigError, match="n, seed"):
        ShardState.read({name: GOOD[name] for name in GOOD if name != "epoch"})


def test_merge_collects_every_part():
    halves = [GOOD | {"positions": at} for at in ([None, 5], [4, None])]
    assert ShardState.merge(halves).to_dict() == GOOD | {"positions": [4, 5]}


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ([], "got none"),
        ([GOOD], "part 1 is missing"),
        ([GOOD, GOOD], "part 0 is given twice"),
        ([GOOD, GOOD | {"positions": [None, 1], "epoch": 2}], "not of one"),
        ([GOOD, GOOD | {"positions": [None, 1], "shares": [1, 1]}], "not of one"),
    ],
)
def test_merge_refuses_states_that_do_not_belong_together(states, says):
    with pytest.raises(ConfigError, match=says):
        ShardState.merge(states)


def test_integer_takes_what_python_takes_as_an_index():
    class Four:
        def __index__(self):
            return 4

    assert integer("n", Four(), 0) == 4
    with pytest.raises(ConfigError, match="n must be >= 0 and < 4, got 4"):
        integer("n", Four(), 0, 4)
