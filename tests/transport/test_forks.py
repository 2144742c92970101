"""What a forked child keeps open of its parent's transports: nothing."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from bireme.transport.base import Closed, Frame, TransportOptions
from bireme.transport.tcp import SocketTransport
from bireme.wire.codec import encode
from bireme.wire.messages import Leave

pytestmark = pytest.mark.filterwarnings("ignore:This process .* multi-threaded:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
OPTIONS = TransportOptions(secret=b"the job's secret", job="job")
ADDRESSES = ("tcp://127.0.0.1:0", "unix://", "shm+unix://")


def opened():
    """Return what each descriptor of this process stands for."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


def tell_opened(pipe, others):
    kept = {
        fd: target
        for fd, target in opened().items()
        if fd not in others and target.startswith(("socket:", "anon_inode:"))
    }
    pipe.send(sorted(kept.values()))
    pipe.close()


def drive(*transports):
    for transport in transports:
        for event in transport.poll(0.05):
            assert not isinstance(event, Closed)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_child_has_none_of_its_parents_descriptors(address):
    others = set(opened())
    with SocketTransport(OPTIONS) as there, SocketTransport(OPTIONS) as here:
        link = linked(there, here, address)
        buffer = here.allocate(1 << 20)
        link.send(Frame(encode(Leave(), 0)))
        drive(there, here)
        targets = "".join(target for fd, target in opened().items() if fd not in others)
        assert "socket:" in targets
        assert "eventpoll" in targets
        receiver, sender = FORK.Pipe(duplex=False)
        child = FORK.Process(target=tell_opened, args=(sender, others | {receiver.fileno()}))
        child.start()
        assert receiver.recv() == []
        child.join(10)
        assert child.exitcode == 0
        # The parent's own are as they were.
        link.send(Frame(encode(Leave(), 0)))
        (arrived,) = there.poll(5)
        assert arrived.link.peer == {}
        buffer.release()
        receiver.close()
        sender.close()


def linked(there, here, address):
    bound = there.listen(address)
    begun = []
    thread = threading.Thread(target=lambda: begun.append(here.connect(bound, 5)))
    thread.start()
    while thread.is_alive():
        there.poll(0.01)
    thread.join()
    return begun[0]


def rest(pipe):
    os.setsid()
    pipe.send(os.getpid())
    signal.pause()


def work(bound, pipe):
    with SocketTransport(OPTIONS) as here:
        here.connect(bound, 5)
        child = os.fork()
        if child == 0:
            rest(pipe)
        signal.pause()


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_killed_parent_is_noticed_at_once_though_its_child_lives(address):
    receiver, sender = FORK.Pipe(duplex=False)
    with SocketTransport(OPTIONS) as there:
        parent = FORK.Process(target=work, args=(there.listen(address), sender))
        parent.start()
        events = []
        while not receiver.poll(0.01):
            events += there.poll(0.01)
        child = receiver.recv()
        try:
            parent.kill()
            limit_s = time.monotonic() + 2
            while not any(isinstance(event, Closed) for event in events):
                assert time.monotonic() < limit_s
                events += there.poll(0.05)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)
            parent.join(10)
            receiver.close()
            sender.close()
