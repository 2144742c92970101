"""How jobs end in the middle of steps that repeat exactly, of which nobody waits for a thread."""

import os
import re
import signal
import time

import pytest
from tests.integration.forking import Job, script
from tests.integration.test_failures_of_jobs import descendants
from tests.launch.processes import shared_memory, wait_until_gone

pytestmark = pytest.mark.slow

SCRIPT = script("repeating.py")
END_S = 10.0
"""Two seconds that launchers leave everyone to end, and much for a busy machine."""


class Repeating:
    """A job under way, of which nothing may be left."""

    def __init__(self, folder, num_servers, **env):
        self.before = shared_memory()
        self.num_nodes = num_servers + 3
        self.job = Job(folder, ["-n", 2, "-s", num_servers], SCRIPT, **env)

    def __enter__(self):
        self.nodes = self.job.pids(self.num_nodes)
        self.job.await_lines("| step", 2)
        self.processes = descendants(self.job.process.pid)
        return self

    def __exit__(self, *error):
        self.job.__exit__(*error)

    def ends_after(self, pid, signum):
        """Send a signal, and return the exit code of a job that ends in time without traces."""
        began_s = time.monotonic()
        os.kill(pid, signum)
        code = self.job.end()
        assert time.monotonic() - began_s < END_S
        wait_until_gone(self.processes, 20)
        assert shared_memory(self.processes) <= self.before
        return code


@pytest.mark.parametrize(
    ("num_servers", "name", "keys"),
    [(1, "S[0]", 1), (2, "S[0]", 1), (2, "S[1]", 40), (1, "W[1]", 1), (2, "W[0]", 40), (2, "H", 1)],
)
def test_a_killed_process_ends_the_job_by_its_name(tmp_path, num_servers, name, keys):
    with Repeating(tmp_path, num_servers, KEYS=keys) as job:
        assert job.ends_after(job.nodes[name], signal.SIGKILL) == 137
        err = job.job.err
        assert f"{name} was killed by SIGKILL" in err[err.index("bireme: ") :]
        who = {"H": "the scheduler on"}.get(name, rf"{re.escape(name)} on")
        for other in job.nodes.keys() - {name}:
            assert re.search(rf"^{re.escape(other)} +\| .*JobAborted: {who} \S+", err, re.M), err


def test_ctrl_c_ends_the_job(tmp_path):
    with Repeating(tmp_path, 1) as job:
        assert job.ends_after(job.job.process.pid, signal.SIGINT) == 130
        assert job.job.err.count("KeyboardInterrupt") >= 1
        assert "JobAborted: S[" not in job.job.err


def test_ctrl_c_lets_workers_use_the_servers_once_more(tmp_path):
    with Repeating(tmp_path, 2, SAVE=1, KEYS=40) as job:
        assert job.ends_after(job.job.process.pid, signal.SIGINT) == 130
        assert len(re.findall(r"saved 0\.0", job.job.out)) == 2, job.job.err
        assert "Traceback" not in job.job.err


def test_an_interrupted_worker_ends_the_job_by_its_name(tmp_path):
    with Repeating(tmp_path, 2, KEYS=40) as job:
        assert job.ends_after(job.nodes["W[1]"], signal.SIGINT) == 130
        assert "W[1] was killed by SIGINT" in job.job.err
        assert re.search(
            r"^W\[0\] +\| .*JobAborted: W\[1\] on \S+: KeyboardInterrupt", job.job.err, re.M
        )


@pytest.mark.parametrize(
    ("policy", "act", "keys"),
    [
        ("continue", "leave:100", 40),
        ("continue", "kill:100", 40),
        ("continue", "under way:100", 1),
        ("wait", "kill:100", 1),
        ("wait", "under way:100", 40),
    ],
)
def test_those_who_are_left_get_the_right_sums(tmp_path, policy, act, keys):
    env = {"ACT": act, "KEYS": keys, "STEPS": 200, "ONCE": tmp_path / "once"}
    env["BIREME_ON_WORKER_DEATH"] = policy
    with Job(tmp_path / "job", ["-n", 2, "-s", 2], SCRIPT, **env) as job:
        assert job.end() == 0, job.err
        assert job.out.count("| done") == (1 if policy == "continue" and "leave" not in act else 2)
        assert job.err.count("restarting W[1]") == (policy == "wait" and "leave" not in act)
