import socket
import threading

import pytest

from bireme.collective import assembly
from bireme.collective.assembly import Assembly
from bireme.errors import CollectiveError, ConfigError
from bireme.settings.ranks import MeetingPoint, RankSettings


@pytest.fixture
def meeting():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return MeetingPoint(host="127.0.0.1", port=port)


@pytest.fixture(autouse=True)
def _places(monkeypatch):
    """Instead of an engine, its topology and a value that only its own store holds."""

    def start(topology, _settings=None, *, store=None):
        if store is not None:
            store.set(f"engine/{topology.rank}", "here")
        return topology

    monkeypatch.setattr(assembly, "start", start)


def start_all(meeting, hosts, *, rooms=None, env=None, ranks=None, **place):
    """Start every rank in a thread of its own and return what each got."""
    rooms = rooms or [Assembly() for _ in hosts]
    found = [None] * len(hosts)

    def one(rank):
        settings = RankSettings(
            rank=rank, size=len(hosts), meeting=meeting, source="a test", **place
        )
        try:
            found[rank] = rooms[rank].start(settings, env or {}, hosts[rank], ranks)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_ranks_learn_their_places_from_the_hosts_of_all(meeting):
    places = start_all(meeting, ["a", "b", "a"])
    assert [(p.local_rank, p.local_size, p.cross_rank, p.cross_size) for p in places] == [
        (0, 2, 0, 2),
        (0, 1, 1, 2),
        (1, 2, 0, 1),
    ]
    assert not places[0].is_homogeneous


def test_they_meet_again_and_again_at_one_place(meeting):
    rooms = [Assembly(), Assembly()]
    for number in range(20):
        # A stale host of the meeting before would show.
        places = start_all(meeting, [f"x{number}", f"y{number}"], rooms=rooms)
        assert [place.hostname for place in places] == [f"x{number}", f"y{number}"]


def test_some_ranks_may_form_a_job_of_their_own(meeting):
    places = start_all(meeting, ["a", "a", "b"], ranks=[2, 0])
    assert [(places[rank].rank, places[rank].size) for rank in (2, 0)] == [(0, 2), (1, 2)]
    assert isinstance(places[1], ConfigError)


def test_a_single_process_needs_no_place(meeting):
    place = RankSettings(rank=0, size=1)
    assert Assembly().start(place, {}, "a").size == 1


def test_without_a_place_it_says_what_to_set():
    place = RankSettings(rank=0, size=2, source="Open MPI")
    with pytest.raises(ConfigError, match="MASTER_ADDR"):
        Assembly().start(place, {}, "a")


def test_ranks_that_do_not_come_are_named(meeting):
    place = RankSettings(rank=0, size=3, meeting=meeting)
    with pytest.raises(CollectiveError, match=r"of 3 ranks, \[1, 2\] did not start in time"):
        Assembly().start(place, {"HOROVOD_START_TIMEOUT": "0.3"}, "a")


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        meeting = MeetingPoint(host="127.0.0.1", port=taken.getsockname()[1])
        place = RankSettings(rank=0, size=2, meeting=meeting)
        with pytest.raises(CollectiveError, match=f"cannot listen at 127.0.0.1:{meeting.port}"):
            Assembly().start(place, {}, "a")


def test_nobody_is_up_before_everybody_is(meeting, monkeypatch):
    begun, go = [], threading.Event()

    def start(topology, _settings=None, *, store=None):
        begun.append(topology.rank)
        if topology.rank == 1:
            assert go.wait(20)
        return topology

    monkeypatch.setattr(assembly, "start", start)
    done = []
    starter = threading.Thread(target=lambda: done.append(start_all(meeting, ["a", "a"])))
    starter.start()
    # Rank 0 waits for rank 1, which is still connecting: it could not leave meanwhile.
    starter.join(0.3)
    assert not done
    go.set()
    starter.join(20)
    assert [place.rank for place in done[0]] == [0, 1]
