"""Wrappers show their own links everywhere, sinks included."""

from bireme.transport.base import Arrived, Closed, Frame, Link, Opened
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.transport.pacing import Pacing
from bireme.transport.wrapper import WrappedLink, WrappedTransport
from bireme.wire.header import write_header


class Plain(WrappedTransport[WrappedLink]):
    def wrap(self, inner: Link) -> WrappedLink:
        return WrappedLink(inner)


def test_one_wrapper_stands_for_one_link() -> None:
    hub = InprocHub()
    server, client = Plain(InprocTransport(hub)), Plain(InprocTransport(hub))
    link = client.connect(server.listen("inproc://server"), 1)
    assert client.poll(0) == [Opened(link)]
    target = bytearray(3)
    asked: list[Link] = []
    server.sink = lambda link, head, size: asked.append(link) or memoryview(target)  # type: ignore[func-returns-value]
    link.send(Frame(write_header(1, b"", 3), [b"abc"]))
    opened, arrived = server.poll(0)
    assert isinstance(arrived, Arrived)
    assert (opened.link, asked, target) == (arrived.link, [arrived.link], b"abc")
    client.pace(Pacing(1e6))
    assert client.links() == [link]
    link.close()
    (closed,) = client.poll(0)
    assert closed == Closed(link, "closed here", True)
    assert client.links() == []
    client.close()
    server.close()
