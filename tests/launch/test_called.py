import contextlib
import selectors
import socket
import time

import msgspec
import pytest

from bireme.launch.called import CalledSite
from bireme.launch.environment import Meeting
from bireme.launch.exits import Exit
from bireme.launch.talk import (
    MARK,
    Asked,
    Begin,
    Bye,
    Ended,
    Failed,
    Files,
    Go,
    Lines,
    Pulse,
    Ready,
    Send,
    StartAgain,
    ToAgent,
    Unframer,
    frame,
)
from bireme.types import worker
from bireme.version import __version__

BEGIN = Begin(
    host="leda",
    workdir="",
    base={},
    starts=(),
    has_scheduler=False,
    has_store=False,
    address="",
    peer="",
    is_open=False,
    threads=0,
)
READY = Ready(version=__version__, python="3.11", hostname="leda", address="10.0.0.1")


class Starter:
    def __init__(self):
        self.opened, self.closed, self.is_gone = [], [], True
        self.how_far = "nobody has called"

    def open(self, selector):
        self.opened.append(selector)

    def step(self):
        """Nothing is due."""

    def close(self, site):
        self.closed.append(site)


class Listener:
    def __init__(self):
        self.heard = []

    def __getattr__(self, name):
        return lambda *args: self.heard.append((name, *args))


class Hall:
    """A site, and the other end of its agent's call."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.listener, self.starter = Listener(), Starter()
        self.site = CalledSite(BEGIN, self.starter, self.selector, self.listener)
        self.agent, self._mine = socket.socketpair()
        self._unframer = Unframer(ToAgent, has_mark=False)

    def call(self):
        self._mine.setblocking(False)
        self.site.take(self._mine)
        self.agent.sendall(MARK)

    def told(self):
        return self._unframer.feed(self.agent.recv(1 << 16))

    def says(self, *messages):
        self.agent.sendall(b"".join(map(frame, messages)))
        self.turn()

    def turn(self, limit_s=5):
        for key, _ in self.selector.select(limit_s):
            key.data()


@pytest.fixture
def hall():
    hall = Hall()
    yield hall
    hall.site.close()
    hall.agent.close()
    hall._mine.close()
    assert not hall.selector.get_map()
    hall.selector.close()


def test_an_agent_that_calls_is_told_its_part(hall):
    hall.site.open()
    assert hall.starter.opened == [hall.selector]
    assert hall.site.how_far == "nobody has called"
    hall.call()
    assert hall.site.how_far == "its agent is not ready"
    hall.site.go(Meeting(scheduler_host="a", scheduler_port=1))
    hall.site.signal((worker(0),), 15)
    hall.site.start_again(worker(0))
    hall.site.leave()
    assert hall.told() == [
        BEGIN,
        Go(Meeting(scheduler_host="a", scheduler_port=1)),
        Send((worker(0),), 15),
        StartAgain(worker(0)),
        Bye(),
    ]


def test_files_come_behind_its_part(hall, tmp_path):
    (tmp_path / "archive").write_bytes(b"x" * (1 << 20))
    hall.site._begin = msgspec.structs.replace(BEGIN, sync_dir="/tmp/job")
    hall.site.bring(tmp_path / "archive")
    hall.call()
    hall.agent.setblocking(False)
    pieces = []
    while not pieces or not pieces[-1].is_last:
        with contextlib.suppress(BlockingIOError):
            pieces += [message for message in hall.told() if isinstance(message, Files)]
        hall.turn(0.01)
    assert b"".join(piece.data for piece in pieces) == b"x" * (1 << 20)


def test_what_it_says_is_passed_on(hall):
    hall.call()
    hall.says(READY, Lines(worker(0), ["hi"], False), Pulse(), Ended(worker(0), 3), Asked(15))
    assert hall.listener.heard == [
        ("ready", hall.site, READY),
        ("lines", worker(0), ["hi"], False),
        ("ended", worker(0), Exit(3)),
        ("asked", 15),
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Failed("no such command"), "no such command"),
        (Ready(version="0", python="3", hostname="", address=""), "it has bireme 0, and"),
    ],
)
def test_an_agent_that_cannot(hall, message, reason):
    hall.call()
    hall.says(message)
    [(name, site, said)] = hall.listener.heard
    assert (name, site) == ("lost", hall.site)
    assert said.startswith(reason)


def test_an_agent_that_goes(hall):
    hall.call()
    hall.turn()
    hall.agent.close()
    hall.turn()
    lost = ("lost", hall.site, "the connection to its agent has ended")
    assert hall.listener.heard == [lost]
    assert hall.site.is_gone
    hall.site.start_again(worker(0))
    assert hall.listener.heard[1][:2] == ("ended", worker(0))


def test_an_agent_that_talks_nonsense(hall):
    hall.call()
    hall.agent.sendall(b"\xff\xff\xff\xff")
    hall.turn()
    assert hall.listener.heard[0][2].startswith("its agent cannot be understood")


def test_an_agent_that_is_silent(hall):
    hall.call()
    now_s = time.monotonic()
    for after_s in range(0, 72, 4):
        hall.site.step(now_s + after_s)
    assert hall.listener.heard == [("lost", hall.site, "nothing has been heard from it for 60 s")]


def test_only_the_first_call_counts(hall):
    hall.call()
    second, other = socket.socketpair()
    with second, other:
        hall.site.take(other)
        assert second.recv(1) == b""


def test_whoever_was_given_up_is_not_taken(hall):
    hall.site.lose("mpirun has ended")
    hall.site.take(hall._mine)
    assert hall.listener.heard == [("lost", hall.site, "mpirun has ended")]
    assert hall.agent.recv(1) == b""
