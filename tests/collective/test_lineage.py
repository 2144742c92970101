"""Whose child this process is."""

import os

import pytest

from bireme.collective.lineage import Lineage

# Python 3.12 and later warn of every fork in a process with threads.
pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def in_child(question):
    """Return what a forked child answers."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, bytes([question()]))
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 1)
    os.close(reader)
    os.waitpid(child, 0)
    return bool(answer[0])


def test_a_child_is_told_from_the_process_that_it_was_forked_from():
    lineage = Lineage()
    assert lineage.is_here
    assert not in_child(lambda: lineage.is_here)
    assert not in_child(lambda: in_child(lambda: lineage.is_here))
    assert lineage.is_here


def test_a_child_has_a_lineage_of_its_own():
    assert in_child(lambda: Lineage().is_here)
