"""One fixed line for every shell, and a reason for every refusal."""

import shlex
import sys

import pytest

from bireme.launch.shells import agent_line, explain, preface


def test_the_line_has_nothing_that_a_shell_takes_for_its_own():
    line = agent_line("/opt/it is/python")
    assert shlex.split(line)[:3] == ["exec", "/opt/it is/python", "-c"]
    assert not set("!$`\\\n") & set(line)
    assert line.count("'") == 4
    assert agent_line().startswith(f"exec {sys.executable} -c ")


def test_the_preface_is_one_line():
    assert preface().endswith(b"\n")
    assert preface().count(b"\n") == 1


@pytest.mark.parametrize(
    ("code", "lines", "words"),
    [
        (255, ["ssh: Could not resolve hostname a: x"], "no such host"),
        (255, ["Permission denied (publickey)."], "ssh-copy-id leda"),
        (1, ["Traceback", "ModuleNotFoundError: No module named 'bireme'"], "install bireme there"),
        (1, ["ModuleNotFoundError: No module named 'msgspec'"], "install it for /p"),
        (127, ["sh: 1: exec: /p: not found"], "there is no /p there"),
        (0, [], "without starting the agent"),
        (3, ["odd"], "exit code 3: odd"),
        (None, [], "the remote shell is silent"),
    ],
)
def test_reasons(code, lines, words):
    assert words in explain("leda", "/p", code, lines)
