"""Watchers say the same, whatever the system gives them."""

import socket

import pytest

from bireme.transport.watching import READING, WRITING, PortableWatcher, new_watcher


@pytest.mark.parametrize("make", [new_watcher, PortableWatcher])
def test_what_is_possible_is_told_by_descriptor(make):
    watcher = make()
    one, other = socket.socketpair()
    descriptor = one.fileno()
    watcher.register(descriptor, READING)
    assert watcher.poll(0.0) == []
    watcher.modify(descriptor, READING | WRITING)
    assert watcher.poll(None) == [(descriptor, WRITING)]
    other.send(b"x")
    assert watcher.poll(20) == [(descriptor, READING | WRITING)]
    watcher.modify(descriptor, READING)
    one.recv(1)
    other.close()
    ((_, mask),) = watcher.poll(20)
    assert mask & READING
    watcher.unregister(descriptor)
    assert watcher.poll(0.0) == []
    one.close()
    watcher.close()


def test_what_children_inherit_is_known():
    watcher = new_watcher()
    assert len(list(watcher.descriptors())) <= 1
    watcher.close()
    assert list(watcher.descriptors()) == []
