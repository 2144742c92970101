import gc
from typing import get_args

import pytest

from bireme.core import actions


def test_every_action_is_part_of_the_union():
    named = {name for name in actions.__all__ if name != "Action"}
    assert {each.__name__ for each in get_args(actions.Action)} == named


def test_actions_are_values_that_the_collector_does_not_walk_over():
    send = actions.Send(1, None, ("payload",))
    assert send == actions.Send(1, None, ("payload",), 0)
    assert not gc.is_tracked(send)
    with pytest.raises(AttributeError):
        send.link = 2
