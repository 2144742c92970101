"""Steps that repeat take the short way, and nothing else does."""

import os
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bireme.core import actions as act
from bireme.core.bunches import Bunch
from bireme.core.calls import BarrierCall, PushCall
from bireme.core.lanes import Lanes
from bireme.core.opencalls import OpenCall
from bireme.core.requests import Lane
from bireme.node import boot
from bireme.node.boot import connect_worker, run_node
from bireme.node.express import Express, ServerExpress, WorkerExpress
from bireme.node.landing import Landing
from bireme.node.memory import Held, bytes_of
from bireme.node.parcels import Parcel
from bireme.settings import JobSettings, NodeSettings, TransportChoice
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import Role
from bireme.wire.codec import decode_head
from bireme.wire.messages import InitEntry, KeyDecl, Push, PushEntry, Value, ValueEntry
from bireme.wire.repeats import Stencil

LIMIT_S = 60.0
ENTRIES = (PushEntry(3, 0, 0, 8),)
VALUES = (ValueEntry(3, 0, 0, 8),)


def push(request, number, view=1):
    return Push(request, view, 0, 0, 1, 1.0, False, True, number, 0, ENTRIES)


class FakeLink:
    """Takes frames at once, or not."""

    def __init__(self, number=7, takes=True) -> None:
        self.context = number
        self.takes = takes
        self.frames: list = []

    def send_at_once(self, head, payload, payload_bytes, memory) -> bool:
        if self.takes:
            self.frames.append((decode_head(head), b"".join(payload)))
        return self.takes


class FakeStation:
    def __init__(self, link) -> None:
        self.lock = threading.RLock()
        self.inbox: list = []
        self.ended: act.EndJob | None = None
        self.links = {link.context: link}
        self.num_messages = 0
        self.performed: list = []

    def perform(self, actions) -> None:
        self.performed += actions


class FakeServer:
    """Answers each push with a value, unless it is told to decline."""

    def __init__(self) -> None:
        self.pushes: list = []
        self.declines = False

    def push_again(self, link, push, numbers, payload, now_s):
        if self.declines:
            return None
        self.pushes.append((link, push, numbers, bytes(payload.payload)))
        value = Value(numbers[0], push.view, numbers[1] + 1, VALUES)
        return [act.Send(link, value, (Held(memoryview(b"8 values")),)), act.Log("info", "done")]


class Side:
    def __init__(self, takes=True) -> None:
        self.link = FakeLink(takes=takes)
        self.station = FakeStation(self.link)
        self.core = FakeServer()
        self.express = ServerExpress(self.core, self.station)

    def learn(self, view=1) -> Stencil:
        stencil = Stencil(push(5, 0, view), 8)
        self.express.learn(7, stencil.write(5, 0), push(5, 0, view), 8)
        return stencil

    def take(self, head, payload=b"gradient") -> bool:
        return self.express.take(self.link, head, memoryview(payload))


def test_a_push_that_was_seen_is_taken_and_answered_by_one_write():
    side = Side()
    stencil = side.learn()
    assert side.take(stencil.write(6, 1))
    assert side.core.pushes == [(7, push(5, 0), (6, 1), b"gradient")]
    assert side.link.frames == [((Value(6, 1, 2, VALUES), 8), b"8 values")]
    assert side.station.performed == [act.Log("info", "done")]
    assert side.station.num_messages == 2


def test_what_was_not_seen_or_is_declined_is_left():
    side = Side()
    assert not side.take(Stencil(push(5, 0), 8).write(6, 1))
    stencil = side.learn()
    side.core.declines = True
    assert not side.take(stencil.write(6, 1))
    side.core.declines = False
    side.station.inbox.append("a link that is new")
    assert not side.take(stencil.write(6, 1))
    side.station.inbox.clear()
    side.station.ended = act.EndJob(0, "over")
    assert not side.take(stencil.write(6, 1))
    side.station.ended = None
    side.station.links.clear()
    assert not side.take(stencil.write(6, 1))
    assert side.station.num_messages == 0


def test_an_answer_that_the_link_does_not_take_goes_the_ordinary_way():
    side = Side(takes=False)
    stencil = side.learn()
    assert side.take(stencil.write(6, 1))
    assert [type(each) for each in side.station.performed] == [act.Send, act.Log]


def test_answers_under_a_new_view_say_so():
    side = Side()
    for view in (1, 2, 3):
        assert side.take(side.learn(view).write(6, 1))
    assert [frame[0][0].view for frame in side.link.frames] == [1, 2, 3]


def test_links_that_are_gone_are_forgotten():
    side = Side()
    side.learn()
    other = FakeLink(8)
    side.station.links = {8: other}
    side.express.learn(8, Stencil(push(5, 0), 8).write(5, 0), push(5, 0), 8)
    assert list(side.express._repeats) == [8]


def test_large_payloads_and_other_messages_are_not_learned():
    side = Side()
    large = Push(5, 1, 0, 0, 1, 1.0, False, True, 0, 0, (PushEntry(3, 0, 0, 1 << 20),))
    side.express.learn(7, Stencil(large, 1 << 20).write(5, 0), large, 1 << 20)
    value = Value(5, 1, 0, VALUES)
    side.express.learn(7, Stencil(value, 8).write(5, 0), value, 8)
    assert side.express._repeats == {}


def test_a_role_without_calls_submits_none():
    assert not Side().express.submit(None)


# The worker's side.


class FakeWorker:
    """Takes calls and values, unless it is told to decline."""

    view = 1

    def __init__(self) -> None:
        self.express = self
        self.declines = False
        self.values: list = []

    def push(self, call, now_s):
        if self.declines:
            return None
        bunch, handle = call.bunches[0]
        bunch.lanes = (Lane(0),)
        lanes = Lanes(iter(range(5, 99)).__next__)
        lanes.add_server(0)
        opened = OpenCall(call, now_s + call.timeout_s, 1)
        return 7, lanes.whole(opened, bunch, handle)

    def value(self, value, request, payload, now_s):
        if self.declines:
            return None
        self.values.append((value, request, bytes(payload.payload)))
        return [act.Complete(1)]


class FakeTransport:
    returns_soon = False


class WorkerSide:
    def __init__(self, takes=True) -> None:
        self.link = FakeLink(takes=takes)
        self.station = FakeStation(self.link)
        self.core = FakeWorker()
        self.transport = FakeTransport()
        self.express = WorkerExpress(self.core, self.station, self.transport)
        self.bunch = Bunch(0, [(3, 0, 8)])

    def call(self, **more) -> PushCall:
        parcel = Parcel([memoryview(b"gradient")], 8, None)
        fields = {"want_value": True, "bunches": ((self.bunch, parcel),)} | more
        return PushCall(1, (), 10.0, **fields)


def test_a_pushpull_leaves_by_one_write():
    side = WorkerSide()
    assert side.express.submit(side.call())
    assert side.express.submit(side.call(priority=3))
    assert side.express.submit(side.call(weight=2.0))
    messages = [frame[0][0] for frame in side.link.frames]
    assert [(each.request, each.priority, each.weight) for each in messages] == [
        (5, 0, 1.0),
        (5, 3, 1.0),
        (5, 0, 2.0),
    ]
    assert messages[0].entries == ENTRIES
    assert {frame[1] for frame in side.link.frames} == {b"gradient"}
    assert side.station.num_messages == 3


def test_a_push_that_the_link_does_not_take_goes_the_ordinary_way():
    side = WorkerSide(takes=False)
    assert side.express.submit(side.call())
    (action,) = side.station.performed
    assert (action.link, action.message.entries) == (7, ENTRIES)


def test_calls_of_another_kind_are_left():
    side = WorkerSide()
    two = ((side.bunch, None), (Bunch(0, [(4, 0, 8)]), None))
    large = ((Bunch(0, [(3, 0, 1 << 20)]), None),)
    for call in (
        side.call(want_value=False),
        side.call(bunches=two),
        side.call(bunches=large),
        side.call(bunches=()),
        BarrierCall(1, "here", 1.0),
    ):
        assert not side.express.submit(call)
    side.core.declines = True
    assert not side.express.submit(side.call())
    assert side.link.frames == side.station.performed == []


def test_an_answer_ends_the_poll():
    side = WorkerSide()
    value = Value(5, 1, 1, VALUES)
    stencil = Stencil(value, 8)
    side.express.learn(7, stencil.write(5, 1), value, 8)
    assert side.express.take(side.link, stencil.write(6, 2), memoryview(b"8 values"))
    assert side.core.values == [(value, 6, b"8 values")]
    assert side.station.performed == [act.Complete(1)]
    assert side.transport.returns_soon
    side.core.declines, side.transport.returns_soon = True, False
    assert not side.express.take(side.link, stencil.write(7, 3), memoryview(b"8 values"))
    assert not side.transport.returns_soon


# The whole way, over sockets.


def job(choice, work, **settings):
    """Run a scheduler, a server and two workers in threads; each worker does ``work``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = listener.getsockname()[1], os.dup(listener.fileno())
    job = JobSettings(transport=choice, start_timeout_s=LIMIT_S, **settings)

    def node(role, rank=0, **fields):
        return NodeSettings(
            role=role,
            rank=rank,
            scheduler_port=port,
            num_workers=2,
            num_servers=1,
            scheduler_host="127.0.0.1",
            secret="a secret of more than sixteen",
            host="127.0.0.1",
            job="test",
            **fields,
        )

    def run_worker(rank):
        client = connect_worker(node(Role.WORKER, rank), job)
        start = client.ready(LIMIT_S)
        try:
            work(rank, client, start)
        finally:
            client.leave(LIMIT_S)

    with ThreadPoolExecutor(4) as threads:
        nodes = [node(Role.SCHEDULER, listen_fd=fd), node(Role.SERVER)]
        running = [threads.submit(run_node, each, job) for each in nodes]
        for each in [threads.submit(run_worker, rank) for rank in (0, 1)]:
            each.result(LIMIT_S)
        assert [each.result(LIMIT_S).exit_code for each in running] == [0, 0]


@pytest.fixture
def ways(monkeypatch):
    """Count what is offered to the short way, by class and whether it was taken."""
    counts: Counter = Counter()
    take = Express.take

    def counted(self, link, head, payload):
        taken = take(self, link, head, payload)
        counts[type(self).__name__, taken] += 1
        return taken

    monkeypatch.setattr(Express, "take", counted)
    # No optimizer is used, and to load them takes seconds.
    monkeypatch.setattr(boot, "_prepare_optimizers", lambda: None)
    return counts


STEPS = 12


def sums(length, **settings):
    """Return what both workers get in each step, by rank."""
    outs: dict[int, list[torch.Tensor]] = {0: [], 1: []}

    def work(rank, client, start):
        (placed,) = client.declare(0, [KeyDecl("w", (length,), DType.FLOAT32)], LIMIT_S)
        slot = (placed.key_id, 0)
        entry = InitEntry(*slot, DType.FLOAT32, length, 1, Layout.DENSE, Consistency.SYNC, 0)
        client.init(0, [(entry, None)], LIMIT_S)
        value, out = torch.zeros(length), torch.zeros(length)
        bunch = Bunch(0, [(*slot, value.nbytes)])
        for step in range(STEPS):
            value.fill_((rank + 1.0) * (step + 1))
            parcel = Parcel([bytes_of(value)], value.nbytes, value)
            landing = Landing({bunch: [bytes_of(out)]}, [out])
            client.pushpull([], landing, LIMIT_S, bunches=[(bunch, parcel)])
            outs[rank].append(out.clone())

    job(settings.pop("choice", TransportChoice.SHM), work, **settings)
    expected = [torch.full((length,), 3.0 * (step + 1)) for step in range(STEPS)]
    return all(map(torch.equal, [*outs[0], *outs[1]], expected + expected))


@pytest.mark.parametrize("choice", [TransportChoice.SHM, TransportChoice.UNIX, TransportChoice.TCP])
def test_steps_of_a_small_key_take_it_and_sum_right(ways, choice):
    assert sums(10_000, choice=choice)
    # The first push is learned from, and by TCP a frame may come in two pieces.
    assert ways["ServerExpress", True] >= STEPS
    assert ways["WorkerExpress", True] >= STEPS


@pytest.mark.parametrize("more", [{"length": 20_000}, {"length": 100, "payload_crc": True}])
def test_large_values_and_checksums_take_the_ordinary_way(ways, more):
    assert sums(**more)
    assert not any(taken for _, taken in ways)
