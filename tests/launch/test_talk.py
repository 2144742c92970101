"""Messages arrive as they were sent, and nothing else is taken for one."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bireme.errors import RemoteProtocolError
from bireme.launch.environment import Meeting
from bireme.launch.talk import (
    MARK,
    Asked,
    Begin,
    Bye,
    Ended,
    Failed,
    FromAgent,
    Go,
    Lines,
    Pulse,
    Ready,
    Send,
    Start,
    StartAgain,
    ToAgent,
    Unframer,
    frame,
    packed,
    unpacked,
)
from bireme.types import SCHEDULER, worker

BEGIN = Begin(
    host="leda",
    workdir="/w",
    base={b"A": b"\xff"},
    starts=(Start(node=worker(0), command=(b"python", b"\xfe"), env={b"B": b"2"}),),
    has_scheduler=True,
    has_store=False,
    address="",
    peer="castor",
    is_open=False,
    threads=0,
)
DOWN = [BEGIN, Go(Meeting(store_port=3)), Send((worker(1),), 15), StartAgain(worker(0)), Bye()]
UP = [
    Ready(version="1", python="3.11", hostname="leda", address="10.0.0.1", store_port=5),
    Failed("no"),
    Lines(SCHEDULER, ["a", "\u00e4"], True),
    Ended(worker(0), -9),
    Asked(15),
    Pulse(),
]


@pytest.mark.parametrize(("kind", "messages"), [(ToAgent, DOWN), (FromAgent, UP)])
@given(sizes=st.lists(st.integers(1, 60), min_size=1))
def test_in_pieces_of_any_size(kind, messages, sizes):
    data = b"".join(map(frame, messages))
    unframer, found, turn = Unframer(kind, has_mark=False), [], 0
    while data:
        size = sizes[turn % len(sizes)]
        found += unframer.feed(data[:size])
        data, turn = data[size:], turn + 1
    assert found == messages


@given(st.binary(max_size=9000), st.integers(1, 700))
def test_what_comes_before_the_mark_is_passed_over(noise, size):
    assume(MARK not in noise)
    data = noise + MARK + frame(Pulse())
    unframer, found = Unframer(FromAgent, has_mark=True), []
    for start in range(0, len(data), size):
        found += unframer.feed(data[start : start + size])
    assert found == [Pulse()]
    assert unframer.has_begun


def test_a_shell_that_never_becomes_an_agent():
    unframer = Unframer(FromAgent, has_mark=True)
    assert unframer.feed(b"Last login: never\n" * 1000) == []
    assert not unframer.has_begun
    assert unframer.noise.endswith(b"Last login: never\n")


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x01\0\0\0\xc1", frame(Bye()), b"\x03\0\0\0abc"]
)
def test_what_is_no_message(data):
    with pytest.raises(RemoteProtocolError):
        Unframer(FromAgent, has_mark=False).feed(data)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.text()))
def test_environments_come_back(env):
    env = {name: text for name, text in env.items() if text.isprintable()}
    assert unpacked(packed(env)) == env
    assert unpacked(packed({"RAW": "\udcff"})) == {"RAW": "\udcff"}
