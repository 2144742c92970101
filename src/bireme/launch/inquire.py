"""Asks the nodes of a running job how they are. Called by ``bireme doctor``.

Any node answers a ``StatusRequest`` of one that is no member but holds the job's secret.
"""

import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from bireme.errors import BiremeError, JobError, RemoteProtocolError
from bireme.transport.base import Arrived, Closed, Frame, Link, TransportOptions
from bireme.transport.choose import best_address
from bireme.transport.machine import machine_token
from bireme.transport.tcp import SocketTransport
from bireme.wire.codec import decode_head, encode
from bireme.wire.messages import Status, StatusRequest

__all__ = ("Answers", "ask_job")

_LIMIT_S = 3.0

Report = Mapping[str, object]


class Answers(msgspec.Struct):
    """What the nodes of a job said, or why they said nothing."""

    scheduler: Report
    servers: dict[str, Report]
    silent: dict[str, str]
    """Servers without an answer: why."""


def ask_job(address: str, secret: bytes, job: str, tls: ssl.SSLContext | None = None) -> Answers:
    """Ask the scheduler, and then every server that it knows.

    Args:
        address: The scheduler's: ``tcp://host:port``.
        secret: The job's; empty for one without.
        job: Its name, which takes part in the proof.
        tls: For a job whose links are encrypted.

    Raises:
        AuthError: The secret or the name is another.
        PeerLost: Nobody listens there.
        JobError: Whoever listens does not answer.
    """
    options = TransportOptions(secret=secret, job=job, identity={"role": "doctor"}, tls_client=tls)
    with SocketTransport(options) as transport:
        scheduler = _ask(transport, address)
        servers: dict[str, Report] = {}
        silent: dict[str, str] = {}
        for name, addresses in _servers(scheduler):
            try:
                servers[name] = _ask(transport, best_address(addresses, machine_token()))
            except BiremeError as error:
                silent[name] = str(error)
        return Answers(scheduler, servers, silent)


def _servers(report: Report) -> Iterator[tuple[str, Sequence[str]]]:
    nodes = report.get("nodes")
    for node in nodes if isinstance(nodes, list) else []:
        if node["addresses"]:
            yield node["node"], node["addresses"]


def _ask(transport: SocketTransport, address: str) -> Report:
    limit_s = time.monotonic() + _LIMIT_S
    with _linked(transport, address) as link:
        link.send(Frame(encode(StatusRequest(0))))
        while time.monotonic() < limit_s:
            for event in transport.poll(max(0.0, limit_s - time.monotonic())):
                if event.link is not link:
                    continue
                if isinstance(event, Closed):
                    raise JobError(f"{address} closed the link without an answer: {event.reason}")
                if isinstance(event, Arrived):
                    return _report(event, address)
    raise JobError(f"{address} did not answer within {_LIMIT_S:g} s")


def _report(event: Arrived, address: str) -> Report:
    try:
        message, _ = decode_head(event.frame.head)
    finally:
        event.frame.release()
    if not isinstance(message, Status):
        raise RemoteProtocolError(f"{address} answered with a {type(message).__name__}")
    return message.report


@contextmanager
def _linked(transport: SocketTransport, address: str) -> Iterator[Link]:
    link = transport.connect(address, _LIMIT_S)
    try:
        yield link
    finally:
        link.close()
