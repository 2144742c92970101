import queue

import pytest

from bireme.core import actions as act
from bireme.core import events as ev
from bireme.errors import AuthError, PeerLost
from bireme.node.connecting import Connector
from bireme.types.nodes import server

LIMIT_S = 20.0


class FakeTransport:
    """Connects to what it is told to."""

    def __init__(self, outcome):
        self.outcome, self.tried = outcome, []

    def connect(self, address, timeout_s):
        self.tried.append(address)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def attempt(outcome, addresses, inproc_names=()):
    """Return what is reported of one attempt, and the addresses that were tried."""
    transport, reports = FakeTransport(outcome), queue.Queue()
    connector = Connector(
        transport, "tcp://sched:1", "W[0]", inproc_names, lambda *told: reports.put(told)
    )
    connector.begin(server(1), 7, addresses)
    return reports.get(timeout=LIMIT_S), transport.tried


def test_without_an_address_it_is_the_scheduler():
    link = object()
    assert attempt(link, ()) == ((ev.Linked(7, server(1)), link), ["tcp://sched:1"])


def test_the_nearest_of_several_addresses_is_taken():
    _, tried = attempt(object(), ("tcp://far:1", "inproc://here"), ["here"])
    assert tried == ["inproc://here"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PeerLost("nobody there"), ev.ConnectFailed(server(1), "nobody there")),
        (AuthError("another secret"), act.EndJob(3, "another secret")),
    ],
)
def test_failures_are_told(error, told):
    (event, link), _ = attempt(error, ())
    assert (event, link) == (told, None)
