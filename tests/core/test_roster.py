import pytest

from bireme.core.roster import Roster
from bireme.errors import StateError
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import Role, server, worker
from bireme.wire.messages import JobConfig, Join, Lost


def join(role=Role.WORKER, rank=None, host="a", pid=1, hint=0, workers=2, software="1"):
    return Join(role, rank, host, pid, (), workers, 1, software, hint)


@pytest.fixture
def roster():
    config = JobConfig(2, 1, 2, death_policy=DeathPolicy.WAIT)
    return Roster(config, host="h", software="1")


def test_ranks_are_those_that_were_asked_for(roster):
    assert roster.admit(1, join(rank=1), 0.0, running=False).node == worker(1)
    assert roster.admit(2, join(rank=0, pid=2), 0.0, running=False).node == worker(0)
    assert roster.missing() == [server(0)]


def test_those_without_a_rank_wait_and_are_ranked_by_host_and_process(roster):
    assert roster.admit(1, join(host="b", pid=5), 0.0, running=False) is None
    assert roster.admit(2, join(host="a", pid=9), 0.0, running=False) is None
    assert roster.admit(3, join(Role.SERVER, 0), 0.0, running=False).node == server(0)
    assert roster.complete
    assert roster.missing() == []
    ranked = roster.rank_the_rest(0.0)
    assert [(info.host, info.node) for info in ranked] == [("a", worker(0)), ("b", worker(1))]


def test_a_rank_has_one_holder(roster):
    roster.admit(1, join(rank=0, host="first", pid=7), 0.0, running=False)
    with pytest.raises(StateError, match="process 7 on first"):
        roster.admit(2, join(rank=0, host="second", pid=8), 0.0, running=False)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (join(rank=5), r"no W\[5\]"),
        (join(rank=0, workers=9), "9 workers"),
        (join(rank=0, software="2"), "version 2"),
        (join(Role.SCHEDULER, 0), "has a scheduler"),
        (join(rank=0, hint=77), "declared dead"),
    ],
)
def test_who_does_not_belong_is_told_why(roster, bad, words):
    with pytest.raises(StateError, match=words):
        roster.admit(1, bad, 0.0, running=False)
    assert roster.seats == {}


def test_a_lost_link_comes_back_to_its_seat(roster):
    info = roster.admit(1, join(rank=0), 0.0, running=False)
    assert roster.unbind(1).info == info
    again = roster.admit(2, join(rank=0, hint=info.incarnation), 1.0, running=True)
    assert again == info
    assert roster.seats[worker(0)].link == 2


def test_a_replacement_has_a_larger_incarnation(roster):
    first = roster.admit(1, join(rank=0), 0.0, running=False)
    roster.remove(worker(0))
    roster.lost[worker(0)] = Lost(worker(0), first.incarnation, "a", "killed")
    second = roster.admit(2, join(rank=None, pid=2), 0.0, running=True)
    assert second.node == worker(0)
    assert second.incarnation > first.incarnation
    assert roster.lost == {}


def test_a_left_rank_is_not_given_again(roster):
    info = roster.admit(1, join(rank=0), 0.0, running=False)
    roster.remove(worker(0))
    roster.left[worker(0)] = info
    with pytest.raises(StateError, match="has left"):
        roster.admit(2, join(rank=0, pid=2), 0.0, running=True)
    assert roster.awaited() == [1]
