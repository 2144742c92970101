"""A reserved port goes to whoever names it, and to nobody else."""

import contextlib
import socket

import pytest

from bireme.errors import ConfigError
from bireme.launch.ports import listening, reserved


def any_port(stack):
    holder = stack.enter_context(socket.socket())
    holder.bind(("127.0.0.1", 0))
    return holder.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_who_names_it_gets_it_once(address):
    with reserved() as port:
        with socket.create_server((address, port)):
            socket.create_connection(("127.0.0.1", port)).close()
            with pytest.raises(OSError, match="in use"):
                socket.create_server((address, port))
        with socket.create_server((address, port)):
            pass


def test_nobody_is_answered_before():
    with reserved() as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_who_asks_for_any_port_gets_another():
    with contextlib.ExitStack() as stack:
        kept = {stack.enter_context(reserved()) for _ in range(200)}
        assert len(kept) == 200
        assert not kept & {any_port(stack) for _ in range(2000)}


def test_it_is_free_afterwards():
    with reserved() as port:
        pass
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", port))


def test_listening_on_an_address_of_this_machine():
    with listening("localhost") as server, socket.create_connection(server.getsockname()[:2]):
        pass


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine(host):
    with pytest.raises(ConfigError, match=f"cannot listen on {host}"):
        listening(host)
