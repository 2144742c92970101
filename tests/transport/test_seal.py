"""Seals: no head can be forged, replayed, dropped, reordered or changed."""

import pytest

from bireme.errors import RemoteProtocolError
from bireme.transport.seal import SEAL_BYTES, Seal


def test_heads_pass_in_their_order_only() -> None:
    sender, receiver = Seal(b"key"), Seal(b"key")
    sealed = [(head, sender.seal(head)) for head in (b"one", b"two", b"three")]
    receiver.check(*sealed[0])
    with pytest.raises(RemoteProtocolError, match="frame 1"):
        receiver.check(*sealed[2])


@pytest.mark.parametrize("at", [0, SEAL_BYTES - 1])
def test_a_changed_bit_is_noticed(at: int) -> None:
    seal = bytearray(Seal(b"key").seal(b"head"))
    seal[at] ^= 1
    with pytest.raises(RemoteProtocolError):
        Seal(b"key").check(b"head", bytes(seal))


def test_another_key_or_head_is_noticed() -> None:
    seal = Seal(b"key").seal(b"head")
    with pytest.raises(RemoteProtocolError):
        Seal(b"other").check(b"head", seal)
    with pytest.raises(RemoteProtocolError):
        Seal(b"key").check(b"heaD", seal)
