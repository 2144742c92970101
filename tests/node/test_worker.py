import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bireme.errors import (
    ConfigError,
    JobAborted,
    StateError,
    UnknownKeyError,
    WaitTimeout,
)
from bireme.node.embedded import EmbeddedCluster, embedded_config
from bireme.node.memory import Held, bytes_of
from bireme.node.tickets import Place
from bireme.settings import JobSettings
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.types.nodes import SCHEDULER
from bireme.wire.messages import CommandKind, InitEntry, KeyDecl

LIMIT_S = 20.0


@pytest.fixture
def clients():
    """Two workers of a job with two servers."""
    cluster = EmbeddedCluster(embedded_config(JobSettings(), 2, 2))
    both = [cluster.client(rank) for rank in range(2)]
    at_once(lambda client: client.ready(LIMIT_S), both)
    yield both
    at_once(lambda client: client.leave(LIMIT_S), both)
    cluster.join(LIMIT_S)


def at_once(action, clients):
    with ThreadPoolExecutor(len(clients)) as threads:
        return list(threads.map(action, clients))


def declare(client, *names, length=4):
    decls = [KeyDecl(name, (length,), DType.FLOAT32) for name in names]
    slots = [(placed.key_id, 0) for placed in client.declare(0, decls, LIMIT_S)]
    if client.rank == 0:
        entries = [
            (InitEntry(*slot, DType.FLOAT32, length, 1, Layout.DENSE, Consistency.SYNC, 0), None)
            for slot in slots
        ]
        client.init(0, entries, LIMIT_S)
    return slots


def item(slot, value):
    return (*slot, Held(bytes_of(value)), value.nbytes, "raw", Layout.DENSE, 0)


def pushpull(client, slots, values, **options):
    outs = [torch.empty_like(value) for value in values]
    items = [item(slot, value) for slot, value in zip(slots, values, strict=True)]
    places = {slot: Place([out]) for slot, out in zip(slots, outs, strict=True)}
    client.pushpull(items, places, LIMIT_S, **options)
    return outs


def begin(client, slots, values, **options):
    outs = [torch.empty_like(value) for value in values]
    items = [item(slot, value) for slot, value in zip(slots, values, strict=True)]
    places = {slot: Place([out]) for slot, out in zip(slots, outs, strict=True)}
    return client.begin_pushpull(items, places, LIMIT_S, **options), outs


def test_before_the_job_is_complete():
    cluster = EmbeddedCluster(embedded_config(JobSettings(), 1, 1))
    client = cluster.client(0)
    with pytest.raises(StateError, match="ready"):
        _ = client.rank
    client.ready(LIMIT_S)
    client.leave(LIMIT_S)
    client.leave(LIMIT_S)
    cluster.join(LIMIT_S)


def test_what_was_begun_ends_while_nobody_waits(clients):
    def work(client):
        slots = declare(client, "a", "b")
        began = [
            begin(client, [slot], [torch.full((4,), 1.0 + client.rank)], priority=-number)
            for number, slot in enumerate(slots)
        ]
        while not all(ticket.done for ticket, _ in began):
            threading.Event().wait(0.001)
        for ticket, outs in began:
            client.finish(ticket)
            assert torch.equal(outs[0], torch.full((4,), 3.0))

    at_once(work, clients)


def test_flush_waits_for_what_was_begun(clients):
    def work(client):
        (slot,) = declare(client, "a")
        ticket, _ = begin(client, [slot], [torch.ones(4)])
        client.flush()
        assert ticket.done
        ticket, _ = begin(client, [(99, 0)], [torch.ones(4)])
        client.flush()
        with pytest.raises(UnknownKeyError):
            client.finish(ticket)

    at_once(work, clients)


def test_every_worker_gets_the_sum(clients):
    def work(client):
        slots = declare(client, "a", "b", "c")
        for number in range(1, 4):
            values = [torch.full((4,), float(number + client.rank + key)) for key in range(3)]
            outs = pushpull(client, slots, values)
            sums = [[2.0 * number + 1 + 2 * key] * 4 for key in range(3)]
            assert [out.tolist() for out in outs] == sums

    at_once(work, clients)


def test_weights_and_means(clients):
    def work(client):
        slots = declare(client, "a")
        value = torch.full((4,), 1.0 + client.rank)
        return pushpull(client, slots, [value], weight=1.0 + 2 * client.rank, mean=True)[0]

    for out in at_once(work, clients):
        assert out.tolist() == [(1 * 1 + 3 * 2) / 4] * 4


def test_a_push_returns_at_once_and_a_pull_sees_it(clients):
    def work(client):
        (slot,) = declare(client, "a")
        freed = threading.Event()
        value = torch.ones(4)
        held = Held(bytes_of(value), freed.set)
        client.push([(*slot, held, 16, "raw", Layout.DENSE, 0)], LIMIT_S)
        out, other = torch.zeros(4), torch.zeros(4)
        client.pull({slot: Place([out, other])}, LIMIT_S)
        client.flush()
        assert freed.wait(10)
        return out.tolist() + other.tolist()

    assert at_once(work, clients) == [[2.0] * 8] * 2


def test_threads_share_a_client(clients):
    def work(client):
        slots = declare(client, *range(6))

        def rounds(slot):
            return [pushpull(client, [slot], [torch.ones(4)])[0].tolist() for _ in range(20)]

        with ThreadPoolExecutor(6) as threads:
            return list(threads.map(rounds, slots))

    for results in at_once(work, clients):
        assert results == [[[2.0] * 4] * 20] * 6


def test_messages_do_not_grow_with_the_number_of_keys(clients):
    def work(client):
        slots = declare(client, *range(50))
        few, many = [], []
        for seen, some in ((few, slots[:1]), (many, slots)):
            for _ in range(5):
                before = client.num_messages
                pushpull(client, some, [torch.ones(4)] * len(some))
                seen.append(client.num_messages - before)
        # One push and one answer for each server; a heartbeat may come in between.
        return min(few), min(many)

    assert at_once(work, clients) == [(2, 4)] * 2


def test_errors_of_a_push_come_with_the_next_wait(clients):
    client = clients[0]
    (slot,) = declare(client, "a")
    client.push([(*slot, Held(memoryview(bytes(3))), 3, "raw", Layout.DENSE, 0)], LIMIT_S)
    with pytest.raises(ConfigError, match="3"):
        client.flush()
    client.flush()


def test_unknown_slots_are_refused_and_nothing_is_sent(clients):
    with pytest.raises(UnknownKeyError):
        pushpull(clients[0], [(99, 0)], [torch.ones(4)])


def test_a_wait_ends_and_names_who_is_missing(clients):
    client = clients[0]
    (slot,) = declare(client, "a")
    value = torch.ones(4)
    with pytest.raises(WaitTimeout, match=r"W\[1\]"):
        client.pushpull([item(slot, value)], {slot: Place([torch.zeros(4)])}, 0.1)
    with pytest.raises(WaitTimeout, match=r"W\[1\]"):
        client.barrier("b", 0.1)


def test_commands_and_status(clients):
    client = clients[0]
    declare(client, "a")
    assert client.status(SCHEDULER, LIMIT_S)["node"] == "H"
    with pytest.raises(ConfigError):
        client.command(0, CommandKind.SET_OPTIMIZER, {"name": "no such"}, LIMIT_S)
    assert set(client.command(0, CommandKind.SET_OPTIMIZER, {}, LIMIT_S)) == {0, 1}


def test_after_the_job_has_ended_every_call_says_why():
    cluster = EmbeddedCluster(embedded_config(JobSettings(), 2, 1))
    both = [cluster.client(rank) for rank in range(2)]
    at_once(lambda client: client.ready(LIMIT_S), both)
    waiting = threading.Thread(target=both[1].leave, args=(LIMIT_S, "out of ideas"))
    waiting.start()
    for _ in range(2):
        with pytest.raises(JobAborted, match="out of ideas"):
            both[0].barrier("never", LIMIT_S)
    waiting.join()
    both[0].leave(LIMIT_S)
    cluster.join(LIMIT_S)
