import os
import socket
import threading

import pytest
from torch.distributed import HashStore

from bireme.collective.bank import meeting
from bireme.collective.bank.meeting import await_keys, meet
from bireme.collective.bank.segment import Layout
from bireme.errors import AuthError, RankLost, WaitTimeout

LAYOUT = Layout(3, 4096)


def gather(ranks, store, timeout_s=10.0, members=(2, 5, 7)):
    found = {}

    def come(rank):
        try:
            found[rank] = meet(store, rank, members, LAYOUT, timeout_s)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=come, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    return threads, found


def joined(threads, found):
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    return found


def test_all_see_the_same_memory_and_no_descriptor_is_left():
    before = len(os.listdir("/proc/self/fd"))
    found = joined(*gather([7, 2, 5], HashStore()))
    assert [found[rank].rank for rank in (2, 5, 7)] == [0, 1, 2]
    found[5].area(1, 0)[:3] = 9
    assert found[2].area(1, 0)[:4].tolist() == [9, 9, 9, 0]
    assert found[7].area(1, 0)[:4].tolist() == [9, 9, 9, 0]
    for each in found.values():
        each.close()
    del found, each
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_does_not_come_is_named():
    found = joined(*gather([2, 7], HashStore(), 1.5))
    assert isinstance(found[2], WaitTimeout)
    assert "rank 5 of this machine" in str(found[2])
    assert isinstance(found[7], (WaitTimeout, RankLost))


def test_a_leader_who_does_not_come_is_named():
    (error,) = joined(*gather([5], HashStore(), 0.3)).values()
    assert isinstance(error, WaitTimeout)
    assert "rank 2 did not come" in str(error)


def test_a_stranger_without_the_secret_gets_nothing_and_disturbs_nobody():
    store = HashStore()
    threads, found = gather([2], store)
    name, _, _ = store.get("door/2").decode().partition(" ")
    for hello in (b"", b"x" * 36, b"short"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.connect(f"\0bireme-bank-{name}")
            if hello:
                stranger.send(hello)
                assert stranger.recv(100) == b""
    more, rest = gather([5, 7], store)
    joined(threads, found)
    joined(more, rest)
    for each in (*found.values(), *rest.values()):
        each.close()


def test_another_user_gets_nothing(monkeypatch):
    monkeypatch.setattr(meeting, "_user", lambda _: os.geteuid() + 1)
    found = joined(*gather([2, 5], HashStore(), 1.5))
    assert isinstance(found[5], AuthError)
    assert isinstance(found[2], WaitTimeout)


def test_a_rank_that_dies_after_it_came_is_named():
    store = HashStore()
    threads, found = gather([2, 7], store)
    name, _, secret = store.get("door/2").decode().partition(" ")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dying:
        dying.connect(f"\0bireme-bank-{name}")
        dying.send(meeting._HELLO.pack(secret.encode(), 5))
        _, descriptors, _, _ = socket.recv_fds(dying, 100, 1)
        os.close(descriptors[0])
    joined(threads, found)
    assert isinstance(found[2], RankLost)
    assert "rank 5 is gone" in str(found[2])
    assert isinstance(found[7], RankLost)


def test_keys_that_are_all_there_are_not_waited_for():
    store = HashStore()
    store.set("a", "1")
    await_keys(store, {0: "a"}, 0.0, "x")
    with pytest.raises(WaitTimeout, match="ranks 1, 2 did not come"):
        await_keys(store, {0: "a", 1: "b", 2: "c"}, 0.0, "x")
