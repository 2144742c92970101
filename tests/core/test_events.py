import gc

import pytest

from bireme.core.events import Linked, Lost, Received, Tick
from bireme.types.nodes import server
from bireme.wire.messages import Heartbeat


def test_events_are_values():
    assert Received(1, Heartbeat(0.0)) == Received(1, Heartbeat(0.0), None)
    assert Linked(1, server(0)) != Linked(2, server(0))
    with pytest.raises(AttributeError):
        Tick().now_s = 1.0
    with pytest.raises(AttributeError):
        Lost(1, "reset").link = 2


def test_the_collector_does_not_walk_over_events():
    assert not gc.is_tracked(Received(1, Heartbeat(0.0)))
