"""Jobs on machines of their own, with links of a known speed: network namespaces.

Needs root and the system's ``ip`` and ``tc``; skipped elsewhere.
"""

import subprocess
import sys

import pytest
from tests.integration.jobs import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import net_job
import netns

SIZE = 250_000
SIZE_BYTES = 4 * SIZE

missing = netns.missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing), reason=f"no network namespaces here: {missing}"),
]


def namespaces():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


@pytest.mark.timeout(300)
def test_links_carry_what_the_shares_say():
    before = namespaces()
    with netns.cluster([200.0] * 4, mtu=9000) as net:
        workers, servers = net.hosts[:3], net.hosts
        script = ROOT / "benchmarks" / "bireme_dist.py"
        with net_job.bireme_job(workers, servers, script) as job:
            job.ask("prepare", name="a", sizes=[SIZE], seed=1)
            job.ask("pushpull", name="a", rounds=1)
            start = net.counts()
            job.ask("pushpull", name="a", rounds=4)
            passed = [new.since(old) for old, new in zip(start, net.counts(), strict=True)]
            (total,) = {answer["sum"] for answer in job.ask("total", name="a")}
            assert total == pytest.approx(job.ask("expected", name="a")[0]["sum"], rel=1e-5)
    assert namespaces() == before
    # n = 3, k = 1: 2 n (n - 1) / (n^2 + k n - 2 k) of the value crosses every link, each way.
    wanted = 4 * SIZE_BYTES * 12 / 10
    for each in passed:
        for number in each:
            # Shares that ignored the links would leave the extra machine at 0.62. Large packets
            # keep headers and acknowledgements, which are no matter of shares, out of the count.
            assert wanted * 0.93 < number < wanted * 1.10


@pytest.mark.timeout(300)
def test_shares_follow_links_that_nobody_stated():
    with netns.cluster([200.0, 50.0, 200.0, 50.0], mtu=9000) as net:
        script = ROOT / "benchmarks" / "bireme_dist.py"
        with net_job.bireme_job(net.hosts, net.hosts, script, stated=False) as job:
            job.ask("prepare", name="a", sizes=[SIZE], seed=1)
            job.ask("pushpull", name="a", rounds=1)
            start = net.counts()
            job.ask("pushpull", name="a", rounds=4)
            passed = [new.since(old) for old, new in zip(start, net.counts(), strict=True)]
    fast, slow = (max(max(each) for each in some) for some in (passed[::2], passed[1::2]))
    # The servers on the fast links hold all: 2 of each byte cross those, one crosses the slow ones.
    # With equal shares it would be 1.5 on each.
    assert slow < 1.25 * 4 * SIZE_BYTES
    assert fast < 2.2 * 4 * SIZE_BYTES


@pytest.mark.timeout(300)
def test_links_carry_each_byte_once_however_many_workers_a_machine_has():
    script = ROOT / "benchmarks" / "bireme_dist.py"
    passed, digests = {}, {}
    # (Workers on each machine, whether machines have relays.)
    for per_host, relay in ((1, True), (2, True), (2, False), (4, True)):
        with netns.cluster([200.0] * 2, mtu=9000) as net:
            workers = [host for host in net.hosts for _ in range(per_host)]
            env = {"BIREME_RELAY": str(int(relay))}
            with net_job.bireme_job(workers, net.hosts, script, env) as job:
                job.ask("prepare", name="a", sizes=[SIZE], seed=1)
                job.ask("pushpull", name="a", rounds=1)
                start = net.counts()
                job.ask("pushpull", name="a", rounds=4)
                counts = [new.since(old) for old, new in zip(start, net.counts(), strict=True)]
                (digest,) = {each["digest"] for each in job.ask("digest", name="a")}
        passed[per_host, relay] = max(max(each) for each in counts)
        digests[per_host, relay] = digest
    assert digests[2, True] == digests[2, False]
    # Two machines with a server each: half of the value crosses each link twice, each way.
    wanted = 4 * SIZE_BYTES
    assert wanted < passed[1, True] < 1.05 * wanted
    assert wanted < passed[2, True] < 1.03 * passed[1, True]
    assert wanted < passed[4, True] < 1.03 * passed[1, True]
    assert passed[2, False] > 1.9 * wanted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("relay", [True, False])
def test_what_all_workers_of_a_machine_pull_crosses_its_link_once(relay):
    script = ROOT / "benchmarks" / "bireme_dist.py"
    with netns.cluster([200.0] * 2, mtu=9000) as net:
        workers = [net.hosts[0]] * 2
        env = {"BIREME_RELAY": str(int(relay)), "BIREME_LINK_PROBE": "0"}
        with net_job.bireme_job(workers, net.hosts[1:], script, env) as job:
            start = net.counts()[0]
            job.ask("broadcast", name="a", sizes=[SIZE], seed=1)
            first = net.counts()[0].since(start)
            start = net.counts()[0]
            job.ask("pull", name="a", rounds=4)
            pulled = net.counts()[0].since(start)
            digests = {each["digest"] for each in job.ask("digest", name="a")}
    assert len(digests) == 1
    # Rank 0's values leave once; both workers want them.
    assert SIZE_BYTES < first.sent_bytes < 1.1 * SIZE_BYTES
    times = 1 if relay else 2
    assert times * SIZE_BYTES < first.received_bytes < 1.1 * times * SIZE_BYTES
    assert 4 * times * SIZE_BYTES < pulled.received_bytes < 4.4 * times * SIZE_BYTES


def test_a_cluster_is_gone_after_an_error_and_what_ran_there_has_ended():
    before = namespaces()
    left = []

    def fail():
        with netns.cluster([100.0]) as net:
            left.append(net.hosts[0].start(["sleep", "100"]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert left[0].wait(10) != 0
    assert namespaces() == before


def test_what_a_killed_process_left_is_removed_later():
    code = (
        "import os, sys; sys.path.insert(0, 'benchmarks'); import netns\n"
        "with netns.cluster([100.0]): os.kill(os.getpid(), 9)"
    )
    before = namespaces()
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert killed.returncode == -9
    assert namespaces() != before
    assert netns.remove_leftovers() == 2
    assert namespaces() == before
