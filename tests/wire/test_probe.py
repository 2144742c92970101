import pytest

from bireme.errors import RemoteProtocolError
from bireme.types.nodes import server
from bireme.wire.codec import decode_head, encode
from bireme.wire.messages import Ping, Pong, Probe, Target
from bireme.wire.probe import MOST_PING_BYTES


@pytest.mark.parametrize("kind", [Ping, Pong])
def test_what_fills_a_link_has_a_limit(kind):
    decode_head(encode(kind(1, MOST_PING_BYTES), MOST_PING_BYTES))
    with pytest.raises(RemoteProtocolError):
        decode_head(encode(kind(1, MOST_PING_BYTES + 1), MOST_PING_BYTES + 1))


def test_nobody_is_asked_to_measure_for_ever():
    targets = (Target(server(0), ("tcp://a",)),)
    with pytest.raises(RemoteProtocolError):
        decode_head(encode(Probe(1, 61.0, 0, targets), 0))
