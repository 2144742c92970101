"""Jobs over a real sshd on two hosts."""

import signal
import sys

import pytest
from tests.clusters import jobs

OPTIONS = ("--launcher", "ssh", "-H", "node-a,node-b")
pytestmark = pytest.mark.timeout(500)


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


SILENT = "import socket, time; s = socket.create_server(('', 2224)); print(1); time.sleep(600)"


@pytest.fixture(scope="module")
def faulty(hosts):
    """Hosts, one of which asks for a password at port 2222 and says nothing at port 2224."""
    config = hosts.folder / "ssh" / "sshd_config-password"
    text = (hosts.folder / "ssh" / "sshd_config-node-b").read_text()
    text = text.replace("Port 22\n", "Port 2222\n").replace("id.pub", "nobody.pub")
    text = text.replace("PasswordAuthentication no", "PasswordAuthentication yes")
    config.write_text(text.replace("sshd-node-b.pid", "sshd-password.pid"))
    hosts.run(["/usr/sbin/sshd", "-f", str(config)], host="node-b", check=True)
    with hosts.start([sys.executable, "-u", "-c", SILENT], host="node-b") as silent:
        assert silent.stdout.readline() == "1\n"
        yield hosts


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("no-such-host", "no such host"),
        ("node-b:2223", "nobody listens there; is its ssh server up, on this port?"),
        ("node-b:2222", "log in without a password first: ssh-copy-id "),
        ("node-b:2224", "does not answer"),
    ],
    ids=["unknown", "refuses", "asks for a password", "is silent"],
)
def test_a_host_that_cannot_be_used(faulty, tmp_path, host, words):
    (tmp_path / "hosts").write_text(f"node-a slots=1\n{host.replace(':', ' slots=1 port=')}\n")
    options = ("--launcher", "ssh", "--hostfile", str(tmp_path / "hosts"), "--start-timeout", "30")
    with faulty.nothing_left():
        ended = faulty.run(jobs.words(options, "-np", "2", "dying"), env=jobs.ENV, folder=tmp_path)
    assert ended.returncode == 2
    assert f"host {host.partition(':')[0]}: " in ended.stderr
    assert words in ended.stderr


@pytest.mark.parametrize(("who", "code"), [("agent", 255), ("rank", 137)])
def test_whoever_is_killed_nothing_is_left(hosts, tmp_path, who, code):
    jobs.is_hit(hosts, tmp_path, *OPTIONS, who=who, code=code)
