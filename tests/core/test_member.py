import msgspec
import pytest
from tests.core.nodes import identity, infos, of, sent, start

from bireme.core.actions import Connect, Log, Pace, Send
from bireme.core.events import Linked
from bireme.core.events import Lost as LinkLost
from bireme.core.member import RECONNECT_S, RETRY_S, Member
from bireme.types.nodes import SCHEDULER, Role, server, worker
from bireme.wire.messages import (
    DeathPolicy,
    Heartbeat,
    HeartbeatAck,
    Join,
    Joined,
    Lost,
    Probe,
    Probed,
    Refused,
    Target,
    ViewChange,
)


@pytest.fixture
def member():
    found = Member(identity(Role.WORKER, 0))
    found.start(0.0)
    found.linked(1, 0.0)
    return found


@pytest.fixture
def running(member):
    member.received(Joined(worker(0), 3, 0.25, 5.0), 0.0)
    member.received(start(2, 1, death_policy=DeathPolicy.WAIT), 0.0)
    return member


def test_it_tries_to_reach_the_scheduler_until_the_limit():
    member = Member(identity(Role.WORKER, 0))
    assert member.start(0.0) == [Connect(SCHEDULER, ())]
    member.connect_failed("refused", 0.0)
    assert member.next_deadline_s() == RETRY_S
    assert member.tick(RETRY_S) == [Connect(SCHEDULER, ())]
    assert member.ended is None
    member.connect_failed("refused", 60.0)
    assert "cannot be reached: refused" in member.ended.text


def test_join_is_repeated_until_it_is_answered(member):
    assert sent(member.tick(1.0), Join)
    member.received(Joined(worker(0), 3, 0.25, 5.0), 1.0)
    (beat,) = sent(member.tick(2.0))
    assert beat == Heartbeat(2.0, 0)


def test_a_job_that_does_not_start_ends(member):
    member.tick(61.0)
    assert member.ended.exit_code == 1
    assert "did not take this worker in" in member.ended.text


def test_the_limit_of_the_start_says_why_the_scheduler_was_not_reached():
    member = Member(identity(Role.WORKER, 0))
    member.start(0.0)
    member.connect_failed("no node of a job", 59.9)
    member.tick(60.0)
    assert member.ended.text.endswith("the scheduler cannot be reached: no node of a job")


def test_once_taken_in_it_leaves_the_limit_of_the_start_to_the_scheduler(member):
    member.received(Joined(worker(0), 3, 0.25, 5.0), 50.0)
    member.tick(60.0)
    assert member.ended is None
    # But not for ever.
    assert member.next_deadline_s() <= 110.0
    member.tick(110.0)
    assert "the scheduler still waits for other nodes" in member.ended.text


def test_a_start_before_joined_waits_to_be_repeated(member):
    member.received(start(2, 1), 0.0)
    assert member.view == 0


def test_views_only_grow(running):
    nodes = infos(2, 1)
    lost = (Lost(worker(1), 4, "b", "killed"),)
    running.received(ViewChange(3, nodes[:-1], lost), 0.0)
    running.received(ViewChange(2, nodes), 0.0)
    assert running.view == 3
    assert running.lost == {1}
    assert running.awaited() == [0, 1]
    running.received(ViewChange(4, nodes, (), (), (worker(1),)), 0.0)
    assert running.awaited() == [0]


def test_silence_of_the_scheduler_ends_the_job(running):
    running.received(HeartbeatAck(0.0), 3.0)
    running.tick(7.0)
    assert running.ended is None
    running.tick(8.5)
    assert "silent" in running.ended.text


def test_a_lost_link_may_come_back_for_a_moment(running):
    assert of(running.lost_link("reset", 1.0), Connect)
    (join,) = sent(running.linked(2, 1.1), Join)
    assert (join.incarnation_hint, join.rank) == (3, 0)
    assert sent(running.tick(1.3), Join), "no heartbeat before it is known again"
    running.received(Joined(worker(0), 3, 0.25, 5.0), 1.4)
    running.tick(1.0 + RECONNECT_S)
    assert running.ended is None


def test_a_lost_link_that_stays_lost_ends_the_job(running):
    running.lost_link("reset", 1.0)
    running.connect_failed("refused", 1.0)
    assert running.next_deadline_s() <= 1.0 + RECONNECT_S
    running.tick(1.0 + RECONNECT_S)
    assert "is gone" in running.ended.text
    assert running.next_deadline_s() is None


def test_refused_is_the_end(member):
    member.received(Refused("W[0] is alive: process 7 on b"), 0.0)
    assert "process 7" in member.ended.text
    assert member.ended.exit_code == 1


def paced(node, servers, workers, stated=0.0, mbps=8.0, **speeds):
    """Return what a node does that joins a job on these machines, with links of such speeds."""
    member = Member(msgspec.structs.replace(identity(node.role, 0), link_mbps=stated))
    member.start(0.0)
    member.linked(1, 0.0)
    member.received(Joined(node, 3, 0.25, 5.0), 0.0)
    message = start(len(workers), len(servers))
    hosts = {Role.SERVER: servers, Role.WORKER: workers, Role.SCHEDULER: "s"}
    nodes = []
    for each in message.nodes:
        host = hosts[each.node.role][each.node.rank]
        speed = speeds.get(host, mbps)
        nodes.append(msgspec.structs.replace(each, link_mbps=speed, host=host))
    return member.received(msgspec.structs.replace(message, nodes=tuple(nodes)), 0.0)


@pytest.mark.parametrize("stated", [0.0, 8.0])
def test_the_speed_of_the_link_is_told_to_the_shell(stated):
    done = paced(worker(0), "x", "a", stated)
    assert of(done, Pace) == [Pace(1e6, 1e6)]
    assert [each.text for each in of(done, Log)] == (
        [] if stated else ["the link of a carries 8 Mbit/s, as measured"]
    )


def test_of_a_link_that_nobody_knows_nothing_is_told():
    assert paced(worker(0), "x", "a", mbps=0.0) == []


def test_the_jobs_fastest_link_is_told_too():
    assert of(paced(worker(0), "xy", "a", y=40.0), Pace) == [Pace(1e6, 5e6)]


@pytest.mark.parametrize(
    ("servers", "workers", "gives_way"),
    [
        ("a", "a", True),
        ("a", "aa", True),
        ("ab", "ab", True),
        ("abx", "ab", True),
        ("x", "a", False),
        ("xab", "ab", False),
        ("a", "ab", False),
        ("ax", "ab", False),
    ],
)
def test_a_server_gives_way_where_each_worker_has_one_beside_it(servers, workers, gives_way):
    (pace,) = of(paced(server(0), servers, workers), Pace)
    assert pace.gives_way == gives_way


def test_a_worker_gives_way_to_nobody():
    (pace,) = of(paced(worker(0), "ab", "ab"), Pace)
    assert not pace.gives_way


def test_it_measures_when_asked_and_answers_the_scheduler(member):
    member.received(Joined(worker(0), 3, 0.25, 5.0), 0.0)
    target = Target(server(0), ("tcp://a",))
    assert member.received(Probe(1, 0.0, 0, (target,)), 0.0) == [
        Connect(target.node, target.addresses)
    ]
    (fill,) = member.probing(Linked(9, server(0)), 0.0)
    assert fill.link == 9
    actions = member.probing(LinkLost(9, "reset"), 0.1)
    assert actions == [Send(1, Probed(1, 0.0, 0.0, (server(0),)))]
