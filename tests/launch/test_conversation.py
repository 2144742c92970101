"""What an agent says reaches the listener, and what it has to hear is never waited for."""

import os
import selectors

import msgspec
import pytest
from tests.launch.test_talk import BEGIN

from bireme.launch.conversation import Conversation
from bireme.launch.exits import Exit
from bireme.launch.talk import (
    MARK,
    Begin,
    Ended,
    Failed,
    Files,
    Pulse,
    Ready,
    ToAgent,
    Unframer,
    frame,
)
from bireme.launch.turn import turn
from bireme.types import worker
from bireme.version import __version__


class Ends:
    """A conversation, and the agent's end of what it writes."""

    def __init__(self):
        self.read_fd, self.write_fd = os.pipe()
        self.selector = selectors.DefaultSelector()
        self.reasons, self.told = [], []
        self.talk = Conversation(self, self.selector, self, self.reasons.append)
        self._unframer = Unframer(ToAgent, has_mark=False)

    def ready(self, site, ready):
        assert site is self
        self.told.append(ready)

    def ended(self, node, exit_):
        self.told.append((node, exit_))

    def heard(self):
        turn(self.selector, 0)
        return self._unframer.feed(os.read(self.read_fd, 1 << 20))


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.talk.close()
    made.selector.close()
    os.close(made.read_fd)
    os.close(made.write_fd)


def test_what_an_agent_says(ends):
    ready = Ready(version=__version__, python="3", hostname="leda", address="")
    ends.talk.take(b"Welcome\n" + MARK + frame(ready) + frame(Ended(worker(1), 3)))
    assert ends.told == [ready, (worker(1), Exit(3))]
    assert (ends.reasons, ends.talk.noise) == ([], b"Welcome\n")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(Ready(version="0", python="3", hostname="leda", address="")), "it has bireme 0, "),
        (frame(Failed("a message cannot be read", "0")), "it has bireme 0, "),
        (frame(Failed("no such command", __version__)), "no such command"),
        (b"\xff\xff\xff\xff", "its agent cannot be understood: "),
    ],
)
def test_whom_one_cannot_talk_to(ends, data, reason):
    ends.talk.take(MARK + data)
    assert len(ends.reasons) == 1
    assert ends.reasons[0].startswith(reason)


def test_files_that_are_larger_than_the_pipe(ends, tmp_path):
    content = os.urandom(3 << 20)
    (tmp_path / "a.tar").write_bytes(content)
    ends.talk.bring(tmp_path / "a.tar")
    begin = msgspec.structs.replace(BEGIN, sync_dir="there")
    ends.talk.begin(ends.write_fd, begin)
    found = []
    while not (found and isinstance(found[-1], Files) and found[-1].is_last):
        found += ends.heard()
    assert found[0].sync_dir == "there"
    assert b"".join(each.data for each in found[1:]) == content
    assert len(ends.selector.get_map()) == 0


def test_signs_of_life_once_both_are_there(ends):
    ends.talk.begin(ends.write_fd, BEGIN)
    ends.talk.step(1000.0)
    assert [type(each) for each in ends.heard()] == [Begin]
    ends.talk.take(MARK)
    ends.talk.step(1001.0)
    assert ends.heard() == [Pulse()]


def test_after_its_end_nothing_is_written(ends):
    ends.talk.begin(ends.write_fd, BEGIN)
    ends.heard()
    assert ends.talk.close() == ends.write_fd
    ends.talk.put(Pulse())
    os.set_blocking(ends.read_fd, False)
    with pytest.raises(BlockingIOError):
        os.read(ends.read_fd, 1)
