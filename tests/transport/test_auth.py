"""The handshake: who gets in, who does not, and what strangers learn."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import AuthError, BiremeError, LocalProtocolError, RemoteProtocolError
from bireme.transport.auth import MAX_HANDSHAKE_BYTES, Credentials, Handshake, Session


def credentials(**changes: object) -> Credentials:
    values = {"secret": b"secret", "job": "job", "identity": {"rank": 1}, "window_bytes": 1000}
    return Credentials(**{**values, **changes})  # type: ignore[arg-type]


def both(client: Credentials | None = None, server: Credentials | None = None):
    return (
        Handshake(client or credentials(), b"c" * 32, client=True),
        Handshake(server or credentials(), b"s" * 32, client=False),
    )


def run(client: Handshake, server: Handshake, portion_bytes: int = 4096) -> list[bytes]:
    """Carry bytes to and fro, and return what the client sent."""
    sent = [client.begin()]
    to_server, to_client = sent[0], b""
    while to_server or to_client:
        reply = b""
        for at in range(0, len(to_server), portion_bytes):
            reply += server.feed(to_server[at : at + portion_bytes])
        to_server, to_client = b"", reply
        for at in range(0, len(to_client), portion_bytes):
            to_server += client.feed(to_client[at : at + portion_bytes])
        to_client = b""
        sent.append(to_server)
    return sent


def session_of(handshake: Handshake) -> Session:
    assert handshake.session is not None
    return handshake.session


@pytest.mark.parametrize("portion_bytes", [1, 7, 4096])
def test_both_sides_learn_the_peer_and_fresh_keys(portion_bytes: int) -> None:
    client, server = both(
        credentials(identity={"role": "worker", "rank": 2}, window_bytes=5),
        credentials(identity={"role": "server"}, window_bytes=6),
    )
    run(client, server, portion_bytes)
    here, there = session_of(client), session_of(server)
    assert (here.peer, here.peer_window_bytes) == ({"role": "server"}, 6)
    assert (there.peer, there.peer_window_bytes) == ({"role": "worker", "rank": 2}, 5)
    assert here.send_key == there.receive_key != here.receive_key == there.send_key


def test_bytes_behind_the_handshake_are_kept() -> None:
    client, server = both()
    to_client = server.feed(client.begin())
    to_client = server.feed(client.feed(to_client) + b"first frame")
    assert server.rest == b"first frame"
    assert client.rest == b""
    client.feed(to_client + b"other frame")
    assert client.rest == b"other frame"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"secret": b"wrong"}, "another secret"),
        ({"job": "another"}, "another job"),
        ({"secret": b""}, "the other has none"),
    ],
)
@pytest.mark.parametrize("wrong_side", ["client", "server"])
def test_strangers_are_refused_and_both_sides_say_why(
    change: dict[str, object], reason: str, wrong_side: str
) -> None:
    client, server = both(**{wrong_side: credentials(**change)})
    with pytest.raises(AuthError, match=reason):
        run(client, server)
    assert server.farewell
    assert client.session is None
    assert server.session is None
    # However the refusal is cut, the reason is awaited.
    for one in server.farewell[:-1]:
        assert client.feed(bytes([one])) == b""
    with pytest.raises(AuthError, match=reason):
        client.feed(server.farewell[-1:])


def test_a_stranger_learns_nothing_but_a_nonce() -> None:
    _, server = both(server=credentials(identity={"host": "hidden"}))
    stranger = Handshake(credentials(secret=b"guess"), b"x" * 32, client=True)
    reply = server.feed(stranger.begin())
    proof = stranger.feed(reply)
    with pytest.raises(AuthError):
        server.feed(proof)
    assert b"hidden" not in reply + server.farewell
    assert len(server.farewell) == 5


def test_a_recorded_handshake_is_of_no_use() -> None:
    client, server = both()
    recorded = run(client, server)
    fresh = Handshake(credentials(), b"t" * 32, client=False)
    fresh.feed(recorded[0])
    with pytest.raises(AuthError):
        fresh.feed(recorded[1])


def test_a_proof_cannot_be_mirrored() -> None:
    """A peer without the secret plays our own words back at us."""
    client = Handshake(credentials(), b"c" * 32, client=True)
    hello = client.begin()
    proof = client.feed(hello)
    with pytest.raises(AuthError):
        client.feed(proof)


def test_an_identity_cannot_be_changed_on_the_way() -> None:
    client, server = both()
    proof = client.feed(server.feed(client.begin()))
    with pytest.raises(AuthError):
        server.feed(proof.replace(b'"rank":1', b'"rank":2'))


def test_another_version_is_refused() -> None:
    client, server = both()
    hello = bytearray(client.begin())
    hello[4] += 1
    with pytest.raises(AuthError, match="version"):
        server.feed(bytes(hello))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        bytes.fromhex("160301020001"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"BRM1",
        b"\0" * 100,
        b"BRMP" + bytes(100),
    ],
)
def test_other_protocols_are_told_apart_at_once(data: bytes) -> None:
    _, server = both()
    with pytest.raises(RemoteProtocolError):
        server.feed(data)


def test_an_endless_handshake_ends() -> None:
    client, server = both()
    server.feed(client.begin())
    endless = struct.pack("<4sHH32s", b"BRMP", 60_000, 0, bytes(32))
    with pytest.raises(RemoteProtocolError):
        server.feed(endless + bytes(MAX_HANDSHAKE_BYTES))


@pytest.mark.parametrize("identity", [b"[]", b"{", b'{"a":[]}', b'{"a":null}', b"[" * 2000])
def test_an_identity_of_another_form_is_refused(
    identity: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = both()
    monkeypatch.setattr(client, "_identity", identity)
    with pytest.raises(RemoteProtocolError):
        run(client, server)


def test_what_cannot_be_said_is_refused_here() -> None:
    with pytest.raises(LocalProtocolError):
        Handshake(credentials(identity={"a": "x" * 5000}), bytes(32), client=True)
    with pytest.raises(LocalProtocolError):
        Handshake(credentials(), b"short", client=True)


def test_secrets_do_not_show() -> None:
    client, server = both()
    run(client, server)
    assert "secret'" not in repr(credentials())
    assert repr(session_of(client).send_key)[2:-1] not in repr(session_of(client))


@given(st.binary(max_size=300), st.integers(0, 200))
def test_noise_ends_in_an_error_of_ours(noise: bytes, at: int) -> None:
    client, server = both()
    to_client = server.feed(client.begin())
    proof = client.feed(to_client)
    try:
        server.feed(proof[:at] + noise)
    except BiremeError:
        return
    assert server.session is None or at >= len(proof)
