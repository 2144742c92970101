"""Many hosts need many descriptors."""

import resource

import pytest

from bireme.errors import ConfigError
from bireme.launch import room
from bireme.launch.room import make_room


def test_the_limit_is_raised_only_as_far_as_needed(monkeypatch):
    asked = []
    monkeypatch.setattr(room.resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(room.resource, "setrlimit", lambda *each: asked.append(each))
    make_room(1000)
    assert asked == []
    make_room(3000)
    assert asked == [(resource.RLIMIT_NOFILE, (3000, 4096))]
    with pytest.raises(ConfigError, match="need 9000 open files, and this shell allows 4096"):
        make_room(9000)


def test_no_limit_at_all(monkeypatch):
    endless = resource.RLIM_INFINITY
    monkeypatch.setattr(room.resource, "getrlimit", lambda _: (endless, endless))
    make_room(10**9)
