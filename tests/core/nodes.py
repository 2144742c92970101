"""Roles that have joined a job, with links by hand, for tests of one role at a time."""

from bireme.core.actions import Send
from bireme.core.calls import DeclareCall
from bireme.core.events import Linked, Received
from bireme.core.member import Identity
from bireme.core.server import ServerCore
from bireme.core.worker import WorkerCore
from bireme.sim.values import FloatValues, pack
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import SCHEDULER, Role, server, worker
from bireme.wire.messages import (
    Ack,
    Attach,
    Attached,
    Declare,
    Declared,
    Init,
    InitEntry,
    JobConfig,
    Joined,
    KeyPlacement,
    NodeInfo,
    Push,
    PushEntry,
    SlotPlacement,
    SlotRound,
    Start,
)

TO_SCHEDULER = 1
FIRST_SERVER = 2
RAW = ("raw", Layout.DENSE, 0)


def infos(num_workers, num_servers, incarnations=None):
    incarnations = incarnations or {}
    nodes = [server(rank) for rank in range(num_servers)]
    nodes += [worker(rank) for rank in range(num_workers)]
    return (
        NodeInfo(SCHEDULER, 1, "host-h", 0, ()),
        *(
            NodeInfo(node, incarnations.get(node, 2 + i), f"host-{i}", i, (f"tcp://{i}",))
            for i, node in enumerate(nodes)
        ),
    )


def identity(role, rank, num_workers=2, num_servers=1):
    return Identity(
        role=role,
        rank=rank,
        host="host",
        pid=1,
        num_workers=num_workers,
        num_servers=num_servers,
    )


def start(num_workers, num_servers, **config):
    settings = JobConfig(num_workers, num_servers, num_workers, **config)
    return Start(1, infos(num_workers, num_servers), settings)


def running_server(num_workers=2, values=None, **config):
    """Return a server whose workers are attached by links 10, 11, ..."""
    core = ServerCore(identity(Role.SERVER, 0, num_workers), values or FloatValues())
    core.start(0.0)
    core.handle(Linked(TO_SCHEDULER, SCHEDULER), 0.0)
    core.handle(Received(TO_SCHEDULER, Joined(server(0), 2, 0.25, 5.0)), 0.0)
    core.handle(Received(TO_SCHEDULER, start(num_workers, 1, **config)), 0.0)
    for rank in range(num_workers):
        (send,) = core.handle(Received(10 + rank, Attach(worker(rank), 3 + rank, 1)), 0.0)
        assert isinstance(send.message, Attached)
    return core


def initialise(core, key_ids=(0,), length=1, consistency=Consistency.SYNC, link=10):
    entries = tuple(
        InitEntry(key, 0, DType.FLOAT64, length, 1, Layout.DENSE, consistency, 8 * length)
        for key in key_ids
    )
    payload = pack([0.0] * length * len(key_ids))
    return core.handle(Received(link, Init(1, 1, 0, entries), payload), 0.0)


def push(rank, number, value, request=9, key_ids=(0,), view=1, **more):
    """Return the ``Received`` of a push by link ``10 + rank``."""
    options = {"weight": 1.0, "mean": False, "want_value": False} | more
    entries = tuple(PushEntry(key, 0, 0, 8) for key in key_ids)
    priority = options.pop("priority", 0)
    shards = (rank, rank + 1)
    message = Push(request, view, rank, *shards, *options.values(), number, priority, entries)
    return Received(10 + rank, message, pack([value] * len(key_ids)))


def running_worker(num_servers=1, num_workers=2, rank=0, num_keys=2, bundle_bytes=1 << 20):
    """Return a worker with keys 0, 1, ... of one slot each, spread over the servers in turn.

    Its links are 1 to the scheduler and 2, 3, ... to the servers.
    """
    core = WorkerCore(identity(Role.WORKER, rank, num_workers, num_servers))
    core.start(0.0)
    core.handle(Linked(TO_SCHEDULER, SCHEDULER), 0.0)
    incarnation = 2 + num_servers + rank
    core.handle(Received(TO_SCHEDULER, Joined(worker(rank), incarnation, 0.25, 5.0)), 0.0)
    begun = start(num_workers, num_servers, bundle_bytes=bundle_bytes)
    core.handle(Received(TO_SCHEDULER, begun), 0.0)
    for index in range(num_servers):
        core.handle(Linked(FIRST_SERVER + index, server(index)), 0.0)
        core.handle(Received(FIRST_SERVER + index, Attached(server(index), 2 + index, 1)), 0.0)
    (send,) = core.handle(DeclareCall(1, 0, (), 10.0), 0.0)
    assert isinstance(send.message, Declare)
    placements = tuple(
        KeyPlacement(key, f"key{key}", (SlotPlacement(key % num_servers, 0, 1),), True)
        for key in range(num_keys)
    )
    core.handle(Received(TO_SCHEDULER, Declared(send.message.request, placements)), 0.0)
    return core


def entries(*key_ids, size=8):
    return tuple((key, 0, f"payload {key}", size, *RAW) for key in key_ids)


def ack(request, *rounds):
    """Return the first server's word that these contributions of a request are taken in."""
    return Received(FIRST_SERVER, Ack(request, 1, tuple(SlotRound(*each) for each in rounds)))


def sent(actions, kind=None):
    """Return the messages among ``actions``, of one class if given."""
    found = [each.message for each in actions if isinstance(each, Send)]
    return found if kind is None else [each for each in found if isinstance(each, kind)]


def of(actions, kind):
    return [each for each in actions if isinstance(each, kind)]
