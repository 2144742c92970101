from typing import get_args

from bireme.core import calls


def test_every_call_is_part_of_the_union_and_has_a_number_and_a_limit():
    named = {name for name in calls.__all__ if name != "Call"}
    assert {each.__name__ for each in get_args(calls.Call)} == named
    for kind in get_args(calls.Call):
        assert {"call", "timeout_s"} <= set(kind.__struct_fields__), kind


def test_calls_do_not_share_their_defaults():
    first, second = (
        calls.CommandCall(number, 0, calls.CommandKind.SAVE_STATE, {}, 1.0) for number in (1, 2)
    )
    assert first.pieces is not second.pieces
