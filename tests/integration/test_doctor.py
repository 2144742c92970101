"""``bireme doctor`` on real jobs: who is there, who waits for whom, who cannot be asked."""

import argparse
import os
import re
import signal

import pytest
from tests.integration.forking import Job, script

from bireme.errors import ConfigError
from bireme.launch.doctor import examine
from bireme.launch.jobs import notes_folder, running_jobs

pytestmark = pytest.mark.slow

SCRIPT = script("script.py")


def ask(job, wanted=None, **env):
    """Return the exit code and the lines of the doctor about a job's folder."""
    lines = []
    options = argparse.Namespace(job=wanted, hosts="", hostfile="")
    code = examine(options, {"XDG_RUNTIME_DIR": str(job.folder), **env}, lines.append)
    return code, "\n".join(lines)


def note_of(job):
    (note,) = running_jobs(notes_folder({"XDG_RUNTIME_DIR": str(job.folder)}))
    return note


def test_a_job_that_waits(tmp_path):
    with Job(tmp_path, ("-n", 2, "-s", 2), SCRIPT, ACT="hang:1:2") as job:
        nodes = job.pids(5)
        job.await_lines("W[0] | step", 2)
        note = note_of(job)
        text = ""
        while "round 2" not in text:
            code, text = ask(job, note.job)
        assert code == 0, text
        assert "running, view 1, 1 key" in text
        assert note.secret not in text
        for name, pid in nodes.items():
            if name != "H":
                assert re.search(
                    rf"{re.escape(name)} +process {pid} on \S+, heard \d+\.\d s ago", text
                )
        assert re.search(r"S\[\d\]: round 2 of key 'w' waits for W\[1\] for \d+\.\d s", text)
        pairs = re.findall(r"^  (\S+) - (\S+) by (\S+?)[ ,]", text, re.M)
        assert sorted(pairs) == [
            ("S[0]", "H", "tcp"),
            ("S[1]", "H", "tcp"),
            ("W[0]", "H", "tcp"),
            ("W[0]", "S[0]", "shm+unix"),
            ("W[0]", "S[1]", "shm+unix"),
            ("W[1]", "H", "tcp"),
            ("W[1]", "S[0]", "shm+unix"),
            ("W[1]", "S[1]", "shm+unix"),
        ]
        assert re.search(
            r"W\[0\] - S\[0\] by shm\+unix, \S+ k?B to S\[0\], \S+ k?B to W\[0\]", text
        )
        by_address = ask(
            job,
            note.scheduler_address.removeprefix("tcp://"),
            BIREME_SECRET=note.secret,
            BIREME_JOB=note.job,
        )
        assert by_address[0] == 0
        everything = ask(job)
        assert note.job in everything[1]
        assert "1 of this user on this machine" in everything[1]

        os.kill(nodes["S[0]"], signal.SIGSTOP)
        code, text = ask(job, note.job)
        assert code == 1
        assert re.search(r"S\[0\] .* does not answer", text)


def test_a_job_that_forms(tmp_path):
    with Job(tmp_path, ("-n", 2, "-s", 1), SCRIPT, ACT="late:1:0") as job:
        job.pids(4)
        note = note_of(job)
        text = ""
        while not re.search(r"not there: W\[1\]$", text, re.M):
            code, text = ask(job, note.job)
        assert code == 0
        assert "forming, view 0, 0 keys" in text


def test_no_such_job(tmp_path):
    class Nothing:
        folder = tmp_path

    with pytest.raises(ConfigError, match="no job 'job-0' of this user runs"):
        ask(Nothing, "job-0")


def test_another_secret_is_refused(tmp_path):
    with Job(tmp_path, ("-n", 1, "-s", 1), SCRIPT, ACT="hang:0:2") as job:
        job.await_lines("W[0] | step", 2)
        address = note_of(job).scheduler_address
        with pytest.raises(ConfigError, match="secret"):
            ask(job, address.removeprefix("tcp://"), BIREME_SECRET="x" * 64)
        with pytest.raises(ConfigError, match="the job's secret is needed"):
            ask(job, address.removeprefix("tcp://"))
        assert ask(job, note_of(job).job)[0] == 0
