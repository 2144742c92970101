"""What each host is told to get ready for."""

from tests.launch.goldens import job

from bireme.launch.hosts import parse_hosts
from bireme.launch.parts import begin_for
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.settings import Security
from bireme.types import worker


def begins(hosts, **options):
    plan = plan_on(job(**options), hosts)
    return [begin_for(plan, host) for host in plan.hosts]


def test_on_one_machine_nobody_looks_for_a_way_out():
    (begin,) = begins([THIS_MACHINE])
    assert (begin.host, begin.peer, begin.has_scheduler, begin.has_store) == (
        "localhost",
        "",
        True,
        True,
    )
    assert begin.starts[-1].node == worker(2)
    assert begin.starts[-1].command[-1] == b"it's"
    assert begin.base[b"TOKEN"] == b"not to be shown"


def test_hosts_find_their_addresses_towards_each_other():
    found = begins(parse_hosts("leda:1,localhost:1,castor:1"))
    assert [begin.peer for begin in found] == ["castor", "leda", "leda"]
    assert [begin.has_scheduler for begin in found] == [True, False, False]
    assert [begin.address for begin in found] == ["", "", ""]
    found = begins(parse_hosts("localhost:1,castor:2"))
    assert [begin.peer for begin in found] == ["castor", "castor"]


def test_what_the_user_says_of_the_scheduler():
    found = begins(parse_hosts("leda:2,castor:1"), scheduler_host="castor")
    assert [begin.address for begin in found] == ["", "castor"]


def test_a_job_without_proofs():
    fields = {"security": Security.OFF, "job": "job-1"}
    assert begins([THIS_MACHINE], node_fields=fields)[0].is_open
