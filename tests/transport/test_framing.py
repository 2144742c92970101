"""The transport's own frames."""

import pytest

from bireme.errors import RemoteProtocolError
from bireme.transport.framing import (
    FIRST_TRANSPORT_KIND,
    TransportKind,
    read_credit,
    transport_head,
)
from bireme.wire.header import HEADER_BYTES, check_body, read_header
from bireme.wire.schema import Kind


def test_kinds_of_messages_and_of_transports_do_not_meet() -> None:
    assert max(Kind) < FIRST_TRANSPORT_KIND == min(TransportKind)


def test_own_frames_are_whole_heads() -> None:
    head = transport_head(TransportKind.BYE, b"reason")
    header = read_header(head)
    check_body(head, header)
    assert (header.kind, header.payload_bytes, head[HEADER_BYTES:]) == (241, 0, b"reason")


def test_a_credit_of_another_size_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        read_credit(bytes(7))
