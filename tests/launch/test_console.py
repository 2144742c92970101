"""Lines carry their process's name; colours are for terminals of people who want them."""

import io
import os
import re

import pytest

from bireme.launch.console import Console, wants_colour
from bireme.types import SCHEDULER, server, worker


class Terminal(io.StringIO):
    def isatty(self):
        return True


def printed(colour):
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err, width=5, colour=colour)
    console.line(SCHEDULER, "up")
    console.line(worker(0), "hello")
    console.line(worker(10), "")
    console.line(server(1), "oh", is_error=True)
    console.say("done")
    return out.getvalue(), err.getvalue()


def test_without_colour():
    out, err = printed(colour=False)
    assert out == "H     | up\nW[0]  | hello\nW[10] |\n"
    assert err == "S[1]  | oh\nbireme: done\n"


def test_with_the_time():
    out = io.StringIO()
    Console(out, out, width=4, colour=False, timestamps=True).line(worker(0), "x")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d W\[0\] \| x\n", out.getvalue())


def test_with_colour_only_names_are_coloured():
    out, err = printed(colour=True)
    assert out.splitlines()[1] == "\x1b[36mW[0]  |\x1b[0m hello"
    assert err.endswith("bireme: done\n")


def test_workers_and_servers_have_colours_of_their_own():
    out = io.StringIO()
    console = Console(out, out, width=4, colour=True)
    for node in (worker(0), worker(1), server(0), server(1)):
        console.line(node, "x")
    assert len({line.split("m")[0] for line in out.getvalue().splitlines()}) == 4


@pytest.mark.parametrize(
    ("stream", "env", "expected"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_who_wants_colour(stream, env, expected):
    assert wants_colour(stream, env) is expected


def test_what_a_terminal_cannot_show_is_replaced():
    raw = io.BytesIO()
    ascii_only = io.TextIOWrapper(raw, encoding="ascii")
    Console(ascii_only, ascii_only, width=4, colour=False).line(worker(0), "na\u00efve")
    assert raw.getvalue() == b"W[0] | na?ve\n"


def test_what_nobody_reads_is_told_once_and_leaves_nothing_to_write():
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    with os.fdopen(write_fd, "w") as out:
        console = Console(out, out, width=4, colour=False)
        with pytest.raises(BrokenPipeError):
            console.line(worker(0), "x")
        # As Python does at its end.
        out.flush()
        console.say("y")
