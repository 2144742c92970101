"""A host gets ready before anything starts, and tells where its processes will listen."""

import os
import selectors
import socket
import sys

import pytest
from tests.launch.goldens import running_job

from bireme.errors import ConfigError
from bireme.launch.environment import Meeting
from bireme.launch.hosts import parse_hosts
from bireme.launch.parts import begin_for
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.launch.site import LocalSite
from bireme.launch.turn import turn
from bireme.settings import Security


class Heard:
    def __init__(self):
        self.said = None
        self.printed = []
        self.exits = []

    def ready(self, _site, ready):
        self.said = ready

    def lines(self, node, lines, is_error):
        self.printed += [(str(node), line) for line in lines]

    def ended(self, node, exit_):
        self.exits.append((str(node), exit_.status))


CODE = "import os; print(os.environ.get('BIREME_SCHEDULER_PORT'), os.environ['OMP_NUM_THREADS'])"


@pytest.fixture
def site_of():
    with selectors.DefaultSelector() as selector:
        sites = []

        def made(hosts=(THIS_MACHINE,), index=0, reached_at="", **options):
            fields = {
                "command": (sys.executable, "-S", "-c", CODE),
                "workdir": "",
                "server_env": {},
            }
            plan = plan_on(running_job(inherited=dict(os.environ), **{**fields, **options}), hosts)
            begin = begin_for(plan, plan.hosts[index])
            site = LocalSite(begin, selector, Heard(), reached_at=reached_at)
            site.heard, site.selector = site._listener, selector
            sites.append(site)
            return site

        yield made
        for site in sites:
            site.close()


def test_ports_are_taken_before_they_are_told(site_of):
    site = site_of()
    site.open()
    said = site.heard.said
    assert said.address == "127.0.0.1"
    assert len({said.scheduler_port, said.store_port, said.engine_port, 0}) == 4
    # The scheduler's listens already, the others are only kept.
    socket.create_connection(("127.0.0.1", said.scheduler_port)).close()
    for port in (said.store_port, said.engine_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_processes_are_told_where_they_meet(site_of):
    site = site_of()
    site.open()
    site.go(Meeting(scheduler_host="127.0.0.1", scheduler_port=site.heard.said.scheduler_port))
    while len(site.heard.exits) < 6:
        turn(site.selector, 10.0)
        site.step(0.0)
    assert {status for _, status in site.heard.exits} == {0}
    assert {line.split()[0] for _, line in site.heard.printed} == {
        str(site.heard.said.scheduler_port)
    }


def test_the_address_by_which_others_reach_it(site_of):
    hosts = parse_hosts("10.77.0.2:1,no-such-host.invalid:2")

    def address(reached_at, **options):
        site = site_of(hosts, 0, reached_at=reached_at, **options)
        site.open()
        return site.heard.said.address

    assert address("192.0.2.7") == "192.0.2.7"
    assert address("192.0.2.7", scheduler_host="10.77.0.2") == "192.0.2.7"
    assert address("", scheduler_host="10.77.0.2") == "10.77.0.2"
    # Through a tunnel, and the way to the others is not known either.
    assert address("127.0.0.2") == "127.0.0.2"
    tunnelled = site_of(parse_hosts("a:1,127.0.0.1:1,127.0.0.9:2"), 0, reached_at="127.0.0.2")
    tunnelled.open()
    assert tunnelled.heard.said.address == "127.0.0.2"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workdir": "/no/such"}, "there is no folder /no/such"),
        ({"command": ("no-such-command",)}, "no such command"),
        ({"command": ("train.py",)}, "write: python train.py"),
    ],
)
def test_what_cannot_be_done_here(site_of, options, words):
    with pytest.raises(ConfigError, match=words):
        site_of(**options).open()


def test_a_host_that_does_not_know_how_it_is_reached(site_of):
    hosts = parse_hosts("localhost:1,no-such-host.invalid:2")
    site = site_of(hosts, 0)
    site.open()
    assert site.heard.said.address == ""
    socket.create_connection(("127.0.0.1", site.heard.said.scheduler_port)).close()
    fields = {"security": Security.OFF, "job": "job-1"}
    with pytest.raises(ConfigError, match="does not know by which address it is reached"):
        site_of(hosts, 0, node_fields=fields).open()
