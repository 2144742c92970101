"""Relays over real tensors and threads: the same bits as without, for every kind of push."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.node.test_cells import Plain
from tests.node.test_partials import raw

from bireme.core.member import Identity
from bireme.core.worker import WorkerCore
from bireme.kvstore.dist.session import Session
from bireme.node.embedded import EmbeddedCluster
from bireme.node.memory import tensor_over
from bireme.node.parcels import cut_parcel
from bireme.node.relay import Relay, TorchSums
from bireme.node.runtime import Runtime
from bireme.node.values import TorchSlotValues
from bireme.node.worker import WorkerClient
from bireme.transport.inproc import InprocTransport
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import Role
from bireme.wire.messages import InitEntry, JobConfig, PushEntry

LIMIT_S = 30.0


class Received:
    def __init__(self, payload):
        self.payload = payload

    def release(self):
        pass


class Machines(EmbeddedCluster):
    """A job in one process that believes to be on several machines."""

    def __init__(self, num_workers, num_servers, per_host, link_mbps=0.0, **config):
        self._per_host = per_host
        self._link_mbps = link_mbps
        super().__init__(JobConfig(num_workers, num_servers, num_workers, **config))

    def client(self, rank):
        door = InprocTransport(self._hub)
        addresses = (door.listen(f"inproc://relay{rank}"),)
        core = WorkerCore(self._identity(Role.WORKER, rank, addresses), cut=cut_parcel)
        return WorkerClient(
            core,
            InprocTransport(self._hub),
            "inproc://scheduler",
            inproc_names=self._names,
            relay=Relay(door, addresses),
        )

    def _identity(self, role, rank, addresses=()):
        host = rank // self._per_host if role is Role.WORKER else rank
        mine = super()._identity(role, rank, addresses)
        named = {name: getattr(mine, name) for name in Identity.__struct_fields__}
        return Identity(**named | {"host": f"host{host}", "link_mbps": self._link_mbps})


def run(script, num_workers=4, num_servers=3, per_host=2, **config):
    """Run ``script(store, rank)`` in a thread for each worker; return what they return."""
    cluster = Machines(num_workers, num_servers, per_host, **config)
    clients = [cluster.client(rank) for rank in range(num_workers)]

    def work(rank):
        session = Session(clients[rank], start_timeout_s=LIMIT_S, exit_timeout_s=LIMIT_S)
        with session.store("dist_sync") as store:
            return script(store, rank)

    with ThreadPoolExecutor(num_workers) as threads:
        results = list(threads.map(work, range(num_workers)))
    cluster.join(LIMIT_S)
    return results


def both_ways(script, **options):
    """Return what the workers have at the end with relays, and without."""
    before = set(threading.enumerate())
    results = [run(script, relay=relay, **options) for relay in (True, False)]
    assert set(threading.enumerate()) <= before
    return results


def random(rank, step, size, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (torch.randn(size, generator=generator) * 10 ** (rank % 3)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("per_host", [2, 3, 4])
def test_sums_are_the_same_bits(dtype, per_host):
    def script(store, rank):
        keys, outs = [0, 1, 2], [torch.zeros(size, dtype=dtype) for size in (7, 300, 1)]
        store.init(keys, outs)
        found = []
        for step in range(4):
            values = [random(rank, step, len(out), dtype) for out in outs]
            store.pushpull(keys, values, outs)
            found += [out.clone() for out in outs]
        return found

    options = {"num_workers": 2 * per_host, "slice_bytes": 1024, "per_host": per_host}
    relayed, direct = both_ways(script, **options)
    for mine, theirs in zip(relayed, direct, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(mine, relayed[0], strict=True))


@pytest.mark.parametrize("compression", [None, {"type": "fp16"}, {"type": "2bit"}])
@pytest.mark.parametrize("optimizer", [False, True])
def test_pushes_of_every_kind_bring_the_same_bits(compression, optimizer):
    def script(store, rank):
        if compression:
            store.set_gradient_compression(compression)
        out = torch.zeros(600)
        store.init("w", out)
        if optimizer:
            store.set_optimizer(torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9))
        for step in range(3):
            store.pushpull("w", random(rank, step, 600), out)
        store.push("w", random(rank, 9, 600))
        store.pull("w", out)
        return out

    relayed, direct = both_ways(script, slice_bytes=1024)
    for mine, theirs in zip(relayed, direct, strict=True):
        assert torch.equal(mine, theirs)


def test_what_relays_send_by_a_slow_link_is_ordered(monkeypatch):
    ordered, order = [], Runtime.order

    def note(runtime, egress):
        ordered.append(egress)
        order(runtime, egress)

    monkeypatch.setattr(Runtime, "order", note)

    def script(store, rank):
        out = torch.zeros(300)
        store.init("w", out)
        store.pushpull("w", random(rank, 0, 300), out)
        return out

    relayed, direct = both_ways(script, slice_bytes=1024, link_mbps=50.0)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(relayed, direct, strict=True))
    assert len(ordered) == 10, "four workers in each job, and the first one's two relays"


def test_weighed_means_are_the_same_bits():
    def script(store, rank):
        out = torch.zeros(50)
        store.init("w", out)
        store.average_async("w", random(rank, 0, 50), out, 1.0 + rank).wait()
        return out

    relayed, direct = both_ways(script)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(relayed, direct, strict=True))


def test_a_leader_that_leaves_early_takes_nothing_with_it():
    def script(store, rank):
        out = torch.zeros(300)
        store.init("w", out)
        for step in range(2 if rank in (0, 2) else 5):
            store.pushpull("w", random(rank, step, 300), out)
        return out

    relayed, direct = both_ways(script, slice_bytes=1024)
    assert torch.equal(relayed[1], relayed[3])
    # Rounds after the second hold the two that are left.
    assert torch.equal(relayed[1], random(1, 4, 300) + random(3, 4, 300))
    assert torch.equal(direct[1], relayed[1])


def test_a_relay_that_fails_is_done_without(monkeypatch, caplog):
    calls = []
    first = TorchSums.first

    def failing(self, dtype, payload, weight):
        calls.append(dtype)
        if len(calls) == 3:
            raise ZeroDivisionError
        return first(self, dtype, payload, weight)

    monkeypatch.setattr(TorchSums, "first", failing)

    def script(store, rank):
        out = torch.zeros(300)
        store.init("w", out)
        for step in range(4):
            store.pushpull("w", random(rank, step, 300), out)
        return out

    relayed, direct = both_ways(script, slice_bytes=1024)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(relayed, direct, strict=True))
    assert any("a relay failed" in message for message in caplog.messages)
    assert any("pushes to the servers itself" in message for message in caplog.messages)


def test_a_relay_that_is_not_needed_listens_no_longer():
    cluster = Machines(1, 1, 1)
    client = cluster.client(0)
    client.ready(LIMIT_S)
    assert not client._relay.is_open
    client.leave(LIMIT_S)
    cluster.join(LIMIT_S)


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_sums_are_those_of_a_server(dtype, weight):
    element = getattr(torch, dtype)
    parts = [(torch.arange(6) * (3 + rank) - 7).to(element) for rank in range(2)]
    frames = [Received(raw(part)) for part in parts]
    sums = TorchSums(Plain)
    total = sums.add(dtype, sums.first(dtype, frames[0], weight), frames[1], weight)

    values = TorchSlotValues(Plain)
    size_bytes = 6 * element.itemsize
    cell = values.initialise(
        0, InitEntry(0, 0, dtype, 6, 1, Layout.DENSE, Consistency.SYNC, 0), None, 0
    )
    entry = PushEntry(0, 0, 0, size_bytes)
    wanted = values.add(
        cell, values.first(cell, entry, frames[0], 0, weight), entry, frames[1], 0, weight
    )
    found = tensor_over(total.view, wanted.tensor.dtype, 6)
    assert torch.equal(found, wanted.tensor)
    # And the server takes it as a contribution.
    itemsize = sums.sum_itemsize(dtype)
    encoding = "raw" if itemsize == element.itemsize else "sum"
    joint = PushEntry(0, 0, 0, 6 * itemsize, encoding)
    values.check_push(cell, joint, Received(total.view), 0)
    taken = values.first(cell, joint, Received(total.view), 0, 1.0)
    assert torch.equal(taken.tensor, wanted.tensor)


def test_merging_uses_up_one_and_copies_are_copies():
    sums = TorchSums(Plain)
    one, two = (
        sums.first(DType.FLOAT32, Received(raw(torch.tensor([value, 1.0]))), 1.0)
        for value in (1.0, 2.0)
    )
    total = sums.merge(DType.FLOAT32, one, two)
    assert tensor_over(total.view, torch.float32, 2).tolist() == [3.0, 2.0]
    memory = bytearray(b"abcd")
    copy = sums.copy(Received(memoryview(memory)))
    memory[:] = b"wxyz"
    assert bytes(copy.view) == b"abcd"
