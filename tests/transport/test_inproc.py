"""What is special in one process: no copies, names, secrets."""

import pytest

from bireme.errors import AuthError, ConfigError
from bireme.transport.base import Arrived, Frame, TransportOptions
from bireme.transport.inproc import InprocHub, InprocTransport
from bireme.wire.header import write_header


def test_a_payload_is_shown_where_it_lies_until_it_is_released() -> None:
    hub = InprocHub()
    with InprocTransport(hub) as server, InprocTransport(hub) as client:
        link = client.connect(server.listen("inproc://"), 1)
        source = bytearray(b"abc")
        sent: list[bool] = []
        link.send(Frame(write_header(1, b"", 3), [source]), 0, lambda: sent.append(True))
        _, arrived = server.poll(0)
        assert isinstance(arrived, Arrived)
        assert arrived.frame.payload.obj is source
        assert sent == []
        arrived.frame.release()
        assert sent == [True]


def test_names_are_taken_once_and_free_again() -> None:
    hub = InprocHub()
    with InprocTransport(hub) as one, InprocTransport(hub) as other:
        address = one.listen("inproc://name")
        with pytest.raises(ConfigError, match="taken"):
            other.listen(address)
        one.close()
        assert other.listen(address) == address
        with pytest.raises(ConfigError, match="inproc://"):
            other.listen("tcp://127.0.0.1:0")


@pytest.mark.parametrize("change", [{"secret": b"x"}, {"job": "x"}])
def test_other_jobs_are_refused(change: dict[str, object]) -> None:
    hub = InprocHub()
    with InprocTransport(hub) as server:
        address = server.listen("inproc://name")
        options = TransportOptions(**change)  # type: ignore[arg-type]
        with InprocTransport(hub, options) as client, pytest.raises(AuthError):
            client.connect(address, 1)


def test_a_queue_that_does_not_leave_is_dropped_at_the_limit() -> None:
    hub = InprocHub()
    server = InprocTransport(hub, TransportOptions(window_bytes=10))
    client = InprocTransport(hub, TransportOptions(linger_s=0.02))
    link = client.connect(server.listen("inproc://"), 1)
    client.poll(0)
    for _ in range(3):
        link.send(Frame(write_header(1, b"", 8), [bytes(8)]))
    link.close()
    (closed,) = client.poll(5)
    assert "linger" in closed.reason
    server.close()
    client.close()
