"""The launcher's end of a remote shell: silence, nonsense and long pauses."""

import os
import selectors
import sys
import time
from functools import partial

import pytest
from tests.launch.goldens import job

from bireme.launch.exits import Exit
from bireme.launch.parts import begin_for
from bireme.launch.plan import THIS_MACHINE, plan_on
from bireme.launch.remote import RemoteSite
from bireme.launch.shells import explain
from bireme.launch.turn import turn
from bireme.types import worker

MARK = "import sys, time; sys.stdout.buffer.write(b'\\0bireme agent 1\\n'); sys.stdout.flush(); "


class Heard:
    def __init__(self):
        self.reasons = []
        self.exits = []

    def lost(self, _site, reason):
        self.reasons.append(reason)

    def ended(self, node, exit_):
        self.exits.append((node, exit_))


@pytest.fixture
def site_of():
    with selectors.DefaultSelector() as selector:
        sites = []

        def made(code):
            plan = plan_on(job(), [THIS_MACHINE])
            heard = Heard()
            site = RemoteSite(
                begin_for(plan, plan.hosts[0]),
                (sys.executable, "-S", "-c", code),
                env=dict(os.environ),
                preface=b"\n",
                selector=selector,
                listener=heard,
                explain=partial(explain, "leda", "python"),
            )
            sites.append(site)
            site.open()
            return site, heard

        made.selector, made.sites = selector, sites
        yield made
        for site in sites:
            site.close()
        assert len(selector.get_map()) == 0


def until(site_of, ready):
    limit_s = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < limit_s
        turn(site_of.selector, 0.1)
        for site in site_of.sites:
            site.step(time.monotonic())


def test_why_there_is_no_agent(site_of):
    site, heard = site_of("import sys; print('x'); print('oh no', file=sys.stderr); sys.exit(3)")
    until(site_of, lambda: heard.reasons)
    assert heard.reasons == ["the remote shell ended with exit code 3: oh no"]
    assert site.how_far.startswith("no answer by ")


def test_a_shell_that_closes_its_output_and_stays(site_of):
    _, heard = site_of("import os, time; os.close(1); os.close(2); time.sleep(60)")
    begin_s = time.monotonic()
    until(site_of, lambda: heard.reasons)
    assert heard.reasons == ["the remote shell is silent"]
    assert time.monotonic() - begin_s < 10


def test_nonsense(site_of):
    _, heard = site_of(MARK + "sys.stdout.write('x' * 1000); sys.stdout.flush(); time.sleep(60)")
    until(site_of, lambda: heard.reasons)
    assert "cannot be understood" in heard.reasons[0]


def test_silence_counts_while_one_listens(site_of):
    site, heard = site_of(MARK + "time.sleep(60)")
    assert site.how_far.startswith("no answer by ")
    until(site_of, lambda: site.how_far == "its agent has started and is not ready")
    now_s = time.monotonic()
    # A launcher that was stopped for an hour blames nobody.
    for each_s in (now_s, now_s + 3600, now_s + 3604):
        site.step(each_s)
        assert heard.reasons == []
    for each_s in range(3608, 3680, 4):
        site.step(now_s + each_s)
    assert heard.reasons == ["nothing has been heard from it for 60 s"]
    site.start_again(worker(0))
    assert heard.exits == [(worker(0), Exit(255, "cannot be started again: localhost is lost"))]


def test_leaving_before_anybody_has_answered(site_of):
    site, _ = site_of("import time; time.sleep(60)")
    begin_s = time.monotonic()
    site.leave()
    until(site_of, lambda: site.is_gone)
    assert time.monotonic() - begin_s < 10
