import pytest

from bireme.core.actions import Close, Connect, Log, OpenRelay, Send
from bireme.core.handing import Handing
from bireme.core.neighbours import Neighbours
from bireme.types.choices import Consistency
from bireme.types.dtypes import DType
from bireme.types.nodes import server, worker
from bireme.wire.messages import Attach, JobConfig, KeyDecl, NodeInfo

LEADER = NodeInfo(worker(2), 5, "b", 1, ("unix://@r",))
NEIGHBOURS = Neighbours(LEADER, (2, 3), (NodeInfo(server(0), 2, "a", 1, ()),), 1)
CONFIG = JobConfig(4, 2, 4)
ATTACH = Attach(worker(3), 6, 1)
LINK = 30


def begun(rank=3, neighbours=NEIGHBOURS):
    handing = Handing()
    return handing, handing.begin(neighbours, worker(rank), 1, 6, CONFIG, 0.0)


def attached():
    handing, _ = begun()
    handing.linked(LINK, ATTACH, 0.0)
    assert handing.heard(LINK)
    return handing


def test_without_neighbours_there_is_nothing_to_wait_for():
    handing, actions = begun(neighbours=None)
    assert handing.settled
    assert actions == []
    assert handing.linked(LINK, ATTACH, 0.0) == [Close(LINK)]


def test_the_leader_opens_the_relay_and_everyone_attaches():
    handing, actions = begun(rank=2)
    assert [type(each) for each in actions] == [OpenRelay, Log, Connect]
    assert actions[0].neighbours is NEIGHBOURS
    handing, actions = begun(rank=3)
    assert actions == [Connect(worker(2), LEADER.addresses)]
    assert not handing.settled
    assert handing.linked(LINK, ATTACH, 0.0) == [Send(LINK, ATTACH)]
    assert not handing.heard(LINK + 1)
    assert handing.heard(LINK)
    assert handing.settled
    assert handing.next_deadline_s() is None


def test_it_asks_again_and_gives_up_for_good():
    handing, _ = begun()
    handing.connect_failed(0.0)
    assert handing.tick(ATTACH, 0.1) == []
    assert handing.tick(ATTACH, handing.next_deadline_s()) == [Connect(worker(2), LEADER.addresses)]
    handing.linked(LINK, ATTACH, 1.0)
    assert handing.tick(ATTACH, 1.6) == [Send(LINK, ATTACH)]
    log, close = handing.tick(ATTACH, 11.0)
    assert (log.level, close) == ("warning", Close(LINK))
    assert handing.settled
    assert not handing.heard(LINK)


@pytest.mark.parametrize(("is_expected", "level"), [(False, "warning"), (True, "debug")])
def test_a_lost_relay_is_not_looked_for_again(is_expected, level):
    handing = attached()
    (log, _) = handing.lost("reset", is_expected=is_expected)
    assert log.level == level
    assert (handing.attached, handing.settled, handing.next_deadline_s()) == (False, True, None)


def test_it_says_once_what_does_not_take_this_way():
    handing = attached()
    key = KeyDecl("w", (1,), DType.FLOAT32, consistency=Consistency.ASYNC)
    (log,) = handing.declared(key)
    assert "directly" in log.text
    assert handing.declared(key) == []
    assert handing.declared(KeyDecl("w", (1,), DType.FLOAT32)) == []
