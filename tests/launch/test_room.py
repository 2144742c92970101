"""Many hosts need many descriptors."""

import resource

import pytest
from tests.launch.goldens import job

from bireme.errors import ConfigError
from bireme.launch import room
from bireme.launch.hosts import Host
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.launch.room import fds_for, make_room


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


def test_processes_elsewhere_need_none_here():
    hosts = [Host(name=f"n{index}", slots=8) for index in range(100)]
    far = plan_on(job(num_workers=800, num_servers=0, server_env={}), hosts)
    near = plan_on(job(num_workers=800, num_servers=0, server_env={}), [THIS_MACHINE])
    assert fds_for(far) < 500
    assert fds_for(near) > 2400
    kept = plan_on(job(num_workers=800, num_servers=0, server_env={}, output_dir="x"), hosts)
    assert fds_for(kept) == fds_for(far) + 1600


def test_no_limit_at_all(monkeypatch):
    endless = resource.RLIM_INFINITY
    monkeypatch.setattr(room.resource, "getrlimit", lambda _: (endless, endless))
    make_room(10**9)
