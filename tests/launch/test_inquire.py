"""Asking a node; whole jobs are asked in tests/integration/test_doctor.py."""

import threading

import pytest

from bireme.errors import AuthError, JobError, PeerLost
from bireme.launch import inquire
from bireme.launch.inquire import ask_job
from bireme.transport.base import Arrived, Frame, TransportOptions
from bireme.transport.tcp import SocketTransport
from bireme.wire.codec import encode
from bireme.wire.messages import LeaveAck, Status

SECRET = b"s" * 32


class Node:
    """Something that listens, and answers everything with one message."""

    def __init__(self, answer):
        self.transport = SocketTransport(TransportOptions(secret=SECRET, job="j"))
        self.address = self.transport.listen("tcp://127.0.0.1:0")
        self.answer = answer
        self.ended = False
        self.thread = threading.Thread(target=self.serve)

    def serve(self):
        while not self.ended:
            for event in self.transport.poll(0.05):
                if isinstance(event, Arrived):
                    event.frame.release()
                    if self.answer is not None:
                        event.link.send(Frame(encode(self.answer)))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.ended = True
        self.thread.join()
        self.transport.close()


def test_an_answer():
    with Node(Status(0, {"nodes": [], "phase": "forming"})) as node:
        answers = ask_job(node.address, SECRET, "j")
    assert answers.scheduler["phase"] == "forming"
    assert answers.servers == answers.silent == {}


def test_servers_that_cannot_be_reached_are_named():
    nodes = [{"node": "S[0]", "addresses": ["unix://@bireme-x?machine=elsewhere"]}]
    with Node(Status(0, {"nodes": nodes})) as node:
        answers = ask_job(node.address, SECRET, "j")
    assert "no address" in answers.silent["S[0]"]


@pytest.mark.parametrize(("secret", "job"), [(b"t" * 32, "j"), (SECRET, "k")])
def test_another_secret_or_job(secret, job):
    with Node(None) as node, pytest.raises(AuthError):
        ask_job(node.address, secret, job)


def test_no_answer(monkeypatch):
    monkeypatch.setattr(inquire, "_LIMIT_S", 0.2)
    with Node(None) as node, pytest.raises(JobError, match="did not answer within"):
        ask_job(node.address, SECRET, "j")


def test_another_answer():
    with Node(LeaveAck()) as node, pytest.raises(Exception, match="answered with a LeaveAck"):
        ask_job(node.address, SECRET, "j")


def test_nobody_there(monkeypatch):
    monkeypatch.setattr(inquire, "_LIMIT_S", 0.2)
    with pytest.raises(PeerLost):
        ask_job("tcp://127.0.0.1:1", SECRET, "j")
