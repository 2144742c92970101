"""Sockets for addresses."""

import os
import socket
import stat
from pathlib import Path

import pytest

from bireme.errors import AuthError, ConfigError
from bireme.transport.address import Address, parse_address
from bireme.transport.endpoints import (
    bind,
    check_same_user,
    resolve,
    start_connecting,
    tune,
)
from bireme.transport.pacing import UNPACED, Pacing


def listen(text: str):
    return bind(parse_address(text), loopback_only=True)


@pytest.mark.parametrize("scheme", ["unix", "shm+unix"])
def test_a_local_address_without_a_name_gets_an_abstract_one(scheme: str) -> None:
    listener, bound, _ = listen(f"{scheme}://")
    with listener:
        assert bound.scheme == scheme
        assert bound.name.startswith("@bireme-")
        assert len(bound.machine) == 16
        with start_connecting(resolve(parse_address(str(bound)))[0]) as client:
            check_same_user(client)


def test_elsewhere_it_gets_a_private_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bireme.transport.endpoints.sys.platform", "darwin")
    listener, bound, clean = listen("unix://")
    folder = Path(bound.name).parent
    with listener:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(bound.name).stat().st_mode) == 0o600
    clean()
    assert not folder.exists()


def test_the_socket_of_a_killed_process_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    dead, _, _ = listen(f"unix://{path}")
    dead.close()
    listener, _, clean = listen(f"unix://{path}")
    with listener, pytest.raises(ConfigError, match="in use"):
        listen(f"unix://{path}")
    clean()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("keep")
    with pytest.raises(ConfigError):
        listen(f"unix://{path}")
    assert path.read_text() == "keep"


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match="too long"):
        listen("unix:///" + "x" * 200)
    with pytest.raises(OSError, match="too long"):
        start_connecting(resolve(Address("unix", "/" + "x" * 200))[0])


def test_unknown_hosts_are_refused() -> None:
    with pytest.raises(ConfigError):
        listen("tcp://no-such-host.invalid:0")


def test_tcp_sends_at_once() -> None:
    listener, bound, _ = listen("tcp://127.0.0.1:0")
    with listener, socket.create_connection((bound.name, bound.port)) as client:
        tune(client.fileno(), UNPACED)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 1 << 20


def test_a_slow_link_is_given_little_in_advance() -> None:
    listener, bound, _ = listen("tcp://127.0.0.1:0")
    with listener, socket.create_connection((bound.name, bound.port)) as client:
        tune(client.fileno(), Pacing(50e6 / 8))
        backlog_bytes = client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        # Linux doubles what is asked for, for its own bookkeeping.
        assert 31_250 <= backlog_bytes < 1 << 18
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > 1 << 20


def test_who_gives_way_is_given_less() -> None:
    listener, bound, _ = listen("tcp://127.0.0.1:0")
    with listener, socket.create_connection((bound.name, bound.port)) as client:
        tune(client.fileno(), Pacing(200e6 / 8, gives_way=True))
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 1 << 15


def test_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        check_same_user(one)
        mine = os.geteuid()
        monkeypatch.setattr("bireme.transport.endpoints.os.geteuid", lambda: mine + 1)
        with pytest.raises(AuthError, match=f"user {mine}"):
            check_same_user(one)


def test_a_name_may_have_several_endpoints() -> None:
    families = {family for family, _ in resolve(Address("tcp", "localhost", 80))}
    assert families <= {socket.AF_INET, socket.AF_INET6}
    assert families


def test_a_connection_learns_later_that_its_link_is_slow() -> None:
    listener, bound, _ = listen("tcp://127.0.0.1:0")
    with listener, socket.create_connection((bound.name, bound.port)) as client:
        tune(client.fileno(), UNPACED)
        tune(client.fileno(), Pacing(50e6 / 8))
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 1 << 18
        client.sendall(b"still open")
    with pytest.raises(OSError, match="descriptor"):
        tune(-1, Pacing(50e6 / 8))
