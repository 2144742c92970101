"""One loop for any number of hosts; here with sites that only pretend."""

import os
import platform
import selectors

import pytest
from tests.launch.goldens import job

from bireme.errors import JobError
from bireme.launch.exits import Exit
from bireme.launch.hosts import Host
from bireme.launch.plan import plan_on
from bireme.launch.supervise import Limits
from bireme.launch.talk import Ready
from bireme.launch.versions import versions
from bireme.launch.watch import run_plan
from bireme.version import __version__

LIMITS = Limits(settle_s=0.0, culprit_s=0.0, grace_s=0.1)


class Pretender:
    """A host whose processes live in its memory only."""

    def __init__(self, world, host, _begin, selector, listener):
        if world.awake not in selector.get_map():
            selector.register(world.awake, selectors.EVENT_READ)
        self.name, self.host = host.host.name, host
        self.world, self.listener = world, listener
        self.is_gone = False
        self.how_far = "thinking"
        self.running = set()

    def open(self):
        self.world.opening += 1
        self.world.most_opening = max(self.world.most_opening, self.world.opening)
        self.world.waiting.append(self)

    def step(self, _now_s):
        if self in self.world.waiting and self.name not in self.world.slow:
            self.world.waiting.remove(self)
            self.world.opening -= 1
            if self.name in self.world.broken:
                self.listener.lost(self, "broken")
                return
            index = int(self.name[1:])
            self.listener.ready(
                self,
                Ready(
                    version=__version__,
                    python=self.world.python,
                    packages=self.world.packages,
                    hostname=self.name,
                    address=f"10.0.0.{index % 250}",
                    scheduler_port=9091 if self.host.has_scheduler else 0,
                    store_port=29500 if self.host.has_store else 0,
                    engine_port=29501 if self.host.has_store else 0,
                ),
            )

    def go(self, meeting):
        self.world.meetings.add(meeting)
        self.running = set(self.host.nodes)
        for node in self.host.nodes:
            code = self.world.exits.get(str(node), 0)
            if code is None:
                continue
            self.listener.lines(node, ["bye"], True)
            self.running.discard(node)
            self.listener.ended(node, Exit(code))
        if self.name in self.world.vanishing:
            self.listener.lost(self, "no route")

    def signal(self, nodes, signum):
        self.world.signals.append((self.name, nodes, signum))
        for node in set(nodes) & self.running:
            self.running.discard(node)
            self.listener.ended(node, Exit(-signum))

    def start_again(self, node):
        self.listener.ended(node, Exit(0))

    def leave(self):
        self.is_gone = True

    def close(self):
        self.world.closed.add(self.name)


class World:
    def __init__(self, num_hosts, num_servers=1, **more):
        self.opening = self.most_opening = 0
        self.waiting, self.signals = [], []
        self.meetings, self.closed = set(), set()
        self.python, self.packages = platform.python_version(), {}
        self.slow, self.broken, self.vanishing, self.exits = (), (), (), {}
        vars(self).update(more)
        self.said, self.printed = [], []
        hosts = [Host(name=f"h{index}", slots=1) for index in range(num_hosts)]
        self.plan = plan_on(
            job(num_workers=num_hosts, num_servers=num_servers, launch_timeout_s=0.2), hosts
        )

    def run(self):
        def site(*each):
            return Pretender(self, *each)

        # Always readable: pretenders have nothing of their own that wakes the loop.
        self.awake, writer = os.pipe()
        os.close(writer)
        try:
            return run_plan(self.plan, self, site, LIMITS)
        finally:
            os.close(self.awake)

    def line(self, node, text, *, is_error):
        self.printed.append((str(node), text, is_error))

    def say(self, text):
        self.said.append(text)


def test_everyone_meets_at_the_first_host():
    world = World(3)
    assert world.run() == 0
    (meeting,) = world.meetings
    assert (meeting.scheduler_host, meeting.scheduler_port) == ("10.0.0.0", 9091)
    assert (meeting.store_port, meeting.engine_port) == (29500, 29501)
    assert world.closed == {"h0", "h1", "h2"}
    assert len(world.printed) == 5


def test_two_thousand_hosts_get_ready_64_at_a_time():
    world = World(2000, num_servers=0)
    world.plan = plan_on(
        job(num_workers=2000, num_servers=0, server_env={}),
        [host.host for host in world.plan.hosts],
    )
    assert world.run() == 0
    assert world.most_opening == 64
    assert len(world.closed) == 2000


def test_hosts_that_differ_from_this_machine_are_told_once():
    world = World(3, python="2.7.18", packages={**versions(), "msgspec": "0.1"})
    assert world.run() == 0
    assert world.said == [
        f"h0, h1, h2 have Python 2.7.18, and {platform.python_version()} is here; name the same by "
        "--ssh-python",
        f"h0, h1, h2 have msgspec 0.1, and {versions()['msgspec']} is here; install the same there",
    ]


def test_a_host_that_cannot():
    world = World(3, broken=("h1",))
    with pytest.raises(JobError, match="host h1: broken"):
        world.run()
    assert world.meetings == set()
    assert world.closed == {"h0", "h1", "h2"}


def test_a_host_that_is_late():
    world = World(3, slow=("h2",))
    with pytest.raises(JobError, match=r"1 of 3 hosts are not ready after 0.2 s: h2: thinking"):
        world.run()
    assert world.closed == {"h0", "h1", "h2"}


def test_the_first_failure_is_reported_with_its_host():
    exits = {"H": None, "S[0]": None, "W[0]": None, "W[1]": 7, "W[2]": None}
    world = World(3, exits=exits)
    assert world.run() == 7
    assert world.said[0].startswith("W[1] on h1 ended with exit code 7 after ")
    assert world.said[0].endswith("its last lines:\n    bye")
    assert {name for name, _, _ in world.signals} == {"h0", "h2"}


def test_a_host_that_vanishes_takes_its_processes_along():
    exits = {"H": None, "S[0]": None, "W[0]": None, "W[1]": None, "W[2]": 0}
    world = World(3, exits=exits, vanishing=("h1",))
    assert world.run() == 255
    assert "W[1] on h1 was lost with its host: no route" in world.said[0]
