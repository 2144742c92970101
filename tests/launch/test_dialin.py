import selectors
import socket
import threading
import time

import pytest

from bireme.errors import TransportError
from bireme.launch import dialin
from bireme.launch.dialin import Reception, dial

SECRET, JOB = b"0123456789abcdef", "job-1"


class Lobby:
    """A reception, and the calls that it has taken."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.calls = []
        self.reception = Reception(SECRET, JOB, self.selector, self._take)
        self.port = self.reception.port

    def _take(self, identity, link):
        index = identity["agent"]
        self.calls.append(index)
        with link:
            link.sendall(b"hello %d" % index)

    def until(self, met, limit_s=20):
        deadline_s = time.monotonic() + limit_s
        while not met():
            assert time.monotonic() < deadline_s
            for key, _ in self.selector.select(0.05):
                key.data()
            self.reception.step()


@pytest.fixture
def lobby():
    lobby = Lobby()
    yield lobby
    lobby.reception.close()
    assert not lobby.selector.get_map()
    lobby.selector.close()


class Call(threading.Thread):
    """An agent; keeps what it was told, or why it was told nothing."""

    def __init__(self, port, index, secret=SECRET, job=JOB):
        super().__init__()
        self.told, self.error = b"", ""
        self._args = [("127.0.0.1", port)], secret, job, {"agent": index}
        self.start()

    def run(self):
        try:
            with dial(*self._args) as link:
                while more := link.recv(99):
                    self.told += more
        except TransportError as error:
            self.error = str(error)


def test_every_agent_gets_a_connection_of_its_own(lobby):
    calls = [Call(lobby.port, index) for index in (2, 0, 1)]
    lobby.until(lambda: not any(call.is_alive() for call in calls))
    assert sorted(lobby.calls) == [0, 1, 2]
    assert [call.told for call in calls] == [b"hello 2", b"hello 0", b"hello 1"]


@pytest.mark.parametrize("wrong", [{"secret": b"another secret!!"}, {"job": "job-2"}])
def test_strangers_are_refused_and_keep_nobody_waiting(lobby, wrong):
    with socket.create_connection(("127.0.0.1", lobby.port)):
        strange, right = Call(lobby.port, 0, **wrong), Call(lobby.port, 1)
        lobby.until(lambda: not (strange.is_alive() or right.is_alive()))
    assert lobby.calls == [1]
    assert strange.told == b""
    assert "cannot reach the launcher" in strange.error
    assert "it holds another secret, or belongs to another job" in strange.error


def test_noise_is_refused(lobby):
    with socket.create_connection(("127.0.0.1", lobby.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        lobby.until(
            lambda: len(lobby.reception._guests) == 0 and len(lobby.selector.get_map()) == 1
        )
    assert lobby.calls == []


def test_who_says_nothing_is_sent_away(lobby, monkeypatch):
    monkeypatch.setattr(dialin, "_PROOF_LIMIT_S", 0.1)
    with socket.create_connection(("127.0.0.1", lobby.port)) as silent:
        lobby.until(lambda: lobby.reception._guests)
        lobby.until(lambda: not lobby.reception._guests)
        silent.settimeout(20)
        assert silent.recv(1) == b""


def test_the_next_address_is_tried(lobby):
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    addresses = [("127.0.0.1", closed), ("127.0.0.1", lobby.port)]
    agent = threading.Thread(target=lambda: dial(addresses, SECRET, JOB, {"agent": 0}).close())
    agent.start()
    lobby.until(lambda: lobby.calls == [0])
    agent.join(20)


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    with pytest.raises(TransportError, match=r"cannot reach the launcher of job-1: .*refused"):
        dial([("127.0.0.1", closed)], SECRET, JOB, {"agent": 0})
