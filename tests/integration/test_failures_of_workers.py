"""What a job does when one of its workers dies, fails, falls silent, or is simply done early."""

import os
import re
import signal
import time

import pytest
from tests.integration.forking import Job, script

pytestmark = pytest.mark.slow

SCRIPT = script("script.py")
THREE = ("-n", 3, "-s", 1)
ALL, WITHOUT_W1 = 6.0, 4.0


def steps(out, node):
    """Return the values that a worker printed, in order."""
    return [
        float(value) for value in re.findall(rf"^{re.escape(node)} +\| step \d+ (.*)$", out, re.M)
    ]


def report(err):
    """Return the launcher's summary: its own lines, and the indented ones below them."""
    return err[err.index("bireme: ") :]


def failed_run(folder, act, *options, **env):
    with Job(folder, [*THREE, *options], SCRIPT, ACT=act, **env) as job:
        code = job.end()
        return code, job.out, job.err


def test_a_killed_worker_ends_the_job_by_its_name(tmp_path):
    began_s = time.monotonic()
    code, _, err = failed_run(tmp_path, "kill:1:2")
    assert code == 137
    assert "W[1] was killed by SIGKILL (exit code 137)" in report(err)
    # Everyone else says who it was, where, and why.
    for node in ("W[0]", "W[2]", "S[0]", "H   "):
        assert re.search(rf"{re.escape(node)} +\| .*JobAborted: W\[1\] on \S+: .+", err), err
    assert time.monotonic() - began_s < 15


def test_an_exception_reaches_the_summary_and_the_others(tmp_path):
    code, _, err = failed_run(tmp_path, "raise:1:2")
    assert code == 1
    assert "W[1] ended with exit code 1" in report(err)
    assert "    ValueError: bad sample 17" in report(err)
    assert re.search(r"W\[0\] +\| .*JobAborted: W\[1\] on \S+: ValueError: bad sample 17", err)


def test_an_exit_status_is_the_jobs(tmp_path):
    code, out, err = failed_run(tmp_path, "exit:1:2", STEPS=500, PAUSE=0.02)
    assert code == 3
    assert "W[1] ended with exit code 3" in report(err)
    assert "done" not in out
    # The job knows it by itself, before the launcher has to end anybody.
    for node in ("W[0]", "W[2]", "S[0]", "H   "):
        assert re.search(
            rf"{re.escape(node)} +\| .*JobAborted: W\[1\] on \S+: it ended with exit code 3", err
        ), err


def test_continue_goes_on_without_a_worker_whose_exit_status_is_not_0(tmp_path):
    code, out, err = failed_run(tmp_path, "exit:1:2", "--on-worker-death", "continue")
    assert code == 0, err
    # Weighed as after a death, and not smaller as after a worker that is done: see below.
    assert steps(out, "W[0]") == steps(out, "W[2]") == [ALL] * 5
    assert "W[1] ended with exit code 3" in err
    assert "H    | H W[1] on" in err
    assert "is dead: it ended with exit code 3" in err


def test_wait_replaces_a_worker_whose_exit_status_is_not_0(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    options = ("--on-worker-death", "wait")
    code, out, err = failed_run(tmp_path / "job", "exit:1:1,3", *options, ONCE=marks)
    assert code == 0, err
    assert steps(out, "W[0]") == steps(out, "W[2]") == [ALL] * 5
    assert err.count("restarting W[1]") == 2
    assert out.count("| done") == 3


def test_a_worker_that_vanishes_with_status_0_is_a_failure(tmp_path):
    code, _, err = failed_run(tmp_path, "vanish:1:2")
    assert code == 1
    assert re.search(r"JobAborted: W\[1\] on \S+: ", report(err))


def test_continue_weighs_the_sum_over_those_who_are_left(tmp_path):
    code, out, err = failed_run(tmp_path, "kill:1:2", "--on-worker-death", "continue")
    assert code == 0, err
    # (1 + 3) * 3 workers / 2 that are left
    assert steps(out, "W[0]") == steps(out, "W[2]") == [ALL, ALL, 6.0, 6.0, 6.0]
    assert "W[1] was killed by SIGKILL" in err
    assert "the job goes on without it" in err


def test_wait_lets_replacements_take_over_several_times(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    options = ("--on-worker-death", "wait")
    code, out, err = failed_run(tmp_path / "job", "kill:1:1,2,4", *options, ONCE=marks)
    assert code == 0, err
    assert steps(out, "W[0]") == steps(out, "W[2]") == [ALL] * 5
    assert err.count("restarting W[1]") == 3
    # A replacement runs the script from its beginning; what was pushed before counts once.
    assert steps(out, "W[1]")[-5:] == [ALL] * 5
    assert out.count("| done") == 3


def test_wait_gives_up_after_max_restarts(tmp_path):
    code, _, err = failed_run(
        tmp_path, "kill:1:1", "--on-worker-death", "wait", "--max-restarts", "1"
    )
    assert code == 137
    assert "W[1] has been restarted 1 times; that is enough" in err


def test_wait_has_a_limit(tmp_path):
    options = ("--on-worker-death", "wait", "--max-restarts", "0")
    code, _, err = failed_run(tmp_path, "kill:1:2", *options, BIREME_REPLACE_TIMEOUT=1)
    assert code == 137
    assert "W[1]" in report(err)


@pytest.mark.parametrize("act", ["close", "return"])
def test_those_who_are_left_go_on_without_one_that_is_done(tmp_path, act):
    code, out, err = failed_run(tmp_path, f"{act}:1:2")
    assert code == 0
    assert err == ""
    assert steps(out, "W[0]") == steps(out, "W[2]") == [ALL, ALL, *[WITHOUT_W1] * 3]


def test_a_script_that_never_closes_its_store_ends_well(tmp_path):
    code, out, err = failed_run(tmp_path, "none:0:0", NO_CLOSE=1)
    assert (code, err) == (0, "")
    assert out.count("| done") == 3


def test_a_pull_that_takes_too_long_names_who_is_missing(tmp_path):
    code, _, err = failed_run(tmp_path, "hang:1:2", BIREME_PULL_TIMEOUT=4)
    assert code == 1
    text = "a pull of key 'w' took longer than 4 s: S[0] waits in round 2: W[1] missing"
    assert text in err
    assert re.search(r"W\[1\] is process \d+ on \S+", err)


def test_a_push_that_takes_too_long_names_who_is_missing(tmp_path):
    code, _, err = failed_run(tmp_path, "hang:1:2", BIREME_PUSH_TIMEOUT=4, WAIT_ALL=1)
    assert code == 1
    assert "a push of key 'w' took longer than 4 s: S[0] waits in round 2: W[1] missing" in err


def test_a_barrier_that_takes_too_long_names_who_is_missing(tmp_path):
    code, _, err = failed_run(tmp_path, "barrier:1:2", BIREME_BARRIER_TIMEOUT=4)
    assert code == 1
    assert re.search(r"barrier .* took longer than 4 s: W\[0\], W\[2\] missing", err)


def test_a_start_that_takes_too_long_names_who_is_missing(tmp_path):
    code, _, err = failed_run(tmp_path, "late:1:0", BIREME_START_TIMEOUT=10)
    assert code == 1
    assert "the job did not form within 10 s: W[1] missing" in err


def test_a_silent_worker_is_declared_dead_and_refused_when_it_comes_back(tmp_path):
    options = ("-n", 3, "-s", 1, "--on-worker-death", "continue")
    refused = tmp_path / "refused"
    env = {"BIREME_HEARTBEAT_TIMEOUT": 4, "STEPS": 20, "HOLD": refused}
    with Job(tmp_path / "job", options, SCRIPT, ACT="stop:1:2", **env) as job:
        stopped = job.pids(5)["W[1]"]
        job.await_line("H    | H W[1] on")
        os.kill(stopped, signal.SIGCONT)
        refusal = job.await_line("JobAborted: the scheduler refuses this worker: incarnation")
        assert refusal.startswith("W[1]")
        assert "was declared dead, and the job went on without it" in refusal
        job.await_line("W[1] ended with exit code 1")
        refused.touch()
        assert job.end(40) == 0
        assert job.out.count("| done") == 2
        assert re.search(r"W\[1\] on \S+ is dead: silent for \d+\.\d s", job.err)


def test_a_worker_that_stays_stopped_is_killed_and_holds_nobody_up(tmp_path):
    began_s = time.monotonic()
    code, out, err = failed_run(
        tmp_path, "stop:1:2", "--on-worker-death", "continue", BIREME_HEARTBEAT_TIMEOUT=3
    )
    assert code == 0, err
    assert out.count("| done") == 2
    assert "killing W[1]: the job has given it up, and it is still there" in err
    assert time.monotonic() - began_s < 40


def test_a_worker_that_stays_stopped_is_replaced(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    env = {"BIREME_HEARTBEAT_TIMEOUT": 3, "ONCE": marks}
    code, out, err = failed_run(tmp_path / "job", "stop:1:2", "--on-worker-death", "wait", **env)
    assert code == 0, err
    assert out.count("| done") == 3
    assert "restarting W[1] (1 of 3)" in err


def test_a_silent_worker_ends_the_job_under_abort(tmp_path):
    began_s = time.monotonic()
    code, _, err = failed_run(tmp_path, "stop:1:2", BIREME_HEARTBEAT_TIMEOUT=3)
    assert code == 1
    assert re.search(r"JobAborted: W\[1\] on \S+: silent for \d+\.\d s", report(err))
    assert "killing" not in err
    assert time.monotonic() - began_s < 20


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_killed_worker_is_noticed_at_once_though_its_data_loader_lives(tmp_path, transport):
    options = (*THREE, "--on-worker-death", "continue")
    env = {"ACT": "1:3", "BIREME_TRANSPORT": transport}
    with Job(tmp_path, options, script("loading.py"), **env) as job:
        assert job.end(60) == 0, job.err
        killed_s = float(re.search(r"killed at (\S+)", job.out)[1])
        ends_s = re.findall(r"W\[0\] +\| step 3 3.0 at (\S+)", job.out)
        assert float(*ends_s) - killed_s < 2
        text = "this process was forked from the worker, process"
        assert len(re.findall(rf"W\[[02]\] +\| child: {text}", job.out)) == 2
