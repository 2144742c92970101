"""Jobs over a real sshd on two hosts."""

import signal

import pytest
from tests.clusters import jobs

OPTIONS = ("--launcher", "ssh", "-H", "node-a,node-b")
pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("check", [jobs.learns_with_servers, jobs.learns_without, jobs.dies])
def test_jobs(hosts, tmp_path, check):
    check(hosts, tmp_path, *OPTIONS)


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, None)]
)
def test_however_it_is_ended_nothing_is_left(hosts, tmp_path, signum, code):
    jobs.is_stopped(hosts, tmp_path, *OPTIONS, signum=signum, code=code)


def test_one_host_is_the_launchers_own(hosts, tmp_path):
    jobs.dies(hosts, tmp_path, "--launcher", "ssh", "-H", "head,node-b")


def test_files_come_along(hosts, tmp_path):
    jobs.is_copied(hosts, tmp_path, *OPTIONS)
