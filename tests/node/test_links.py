"""A node's links in its report on itself."""

from bireme.node.links import with_links
from bireme.transport.base import Frame
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.wire.codec import encode
from bireme.wire.messages import Heartbeat


def test_links_say_by_which_way_and_how_much():
    hub = InprocHub()
    with InprocTransport(hub) as there, InprocTransport(hub) as here:
        link = here.connect(there.listen("inproc://s"), 1)
        head = encode(Heartbeat(0.0, 1))
        link.send(Frame(head))
        told = with_links({"node": "S[0]", "peers": [[3, "W[0]"], [4, "W[1]"]]}, {3: link})
        assert told == {
            "node": "S[0]",
            "links": [
                {
                    "peer": "W[0]",
                    "scheme": "inproc",
                    "address": "inproc://s",
                    "sent_bytes": len(head),
                    "received_bytes": 0,
                }
            ],
        }


def test_a_report_without_peers_has_no_links():
    assert with_links({"node": "H"}, {}) == {"node": "H", "links": []}
