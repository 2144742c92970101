"""The backend bireme between real processes: training, death, and what is left afterwards."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.launch.processes import shared_memory, wait_until_asleep

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).parent / "programs" / "bank_job.py"


class Job:
    def __init__(self, case, size, folder):
        self.shared = shared_memory()
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), case, str(rank), str(size), f"{folder}/store"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            )
            for rank in range(size)
        ]  # fmt: skip

    def await_line(self, line):
        for each in self.ranks:
            assert each.stdout.readline() == line + "\n", each.communicate()[1]

    def results(self, timeout_s=100, but=()):
        found = []
        for rank, each in enumerate(self.ranks):
            # Not communicate(): it does not know the lines that were read ahead.
            out, err = each.stdout.read(), each.stderr.read()
            each.wait(timeout_s)
            assert rank in but or each.returncode == 0, err
            found.append(out.splitlines())
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self.ranks:
            each.kill()
            each.wait()
            each.stdout.close()
            each.stderr.close()
        assert shared_memory(each.pid for each in self.ranks) <= self.shared


@pytest.mark.parametrize("size", [2, 3])
def test_training_equals_gloo(size, tmp_path):
    with Job("ddp", size, tmp_path) as job:
        assert job.results() == [["done"]] * size


@pytest.mark.parametrize("seed", [0, 1])
def test_a_death_at_any_moment_is_told_to_all_within_a_second(seed, tmp_path):
    chance = random.Random(seed)
    size = chance.choice([2, 3, 4])
    victim = chance.randrange(size)
    with Job("run_until_killed", size, tmp_path) as job:
        job.await_line("running")
        time.sleep(chance.random() * 0.5)
        job.ranks[victim].kill()
        killed_s = time.monotonic()
        for rank, each in enumerate(job.ranks):
            if rank != victim:
                told = each.stdout.readline()
                assert told.startswith("RankLost"), (told, each.communicate()[1])
                assert f"rank {victim} ended" in told
        # Half a second is ours at most; the rest is this machine's, which runs other tests too.
        assert time.monotonic() - killed_s < 2.0
        found = job.results(but=[victim])
        for rank, lines in enumerate(found):
            if rank != victim:
                assert lines[0].startswith("then ")
                assert lines[1:] == ["ended", "done"]


def test_a_death_under_ddp_ends_the_backward_pass(tmp_path):
    with Job("async_death", 3, tmp_path) as job:
        job.await_line("running")
        job.ranks[1].kill()
        found = job.results(but=[1])
        for rank in (0, 2):
            assert "rank 1 ended" in found[rank][0]
            assert found[rank][-2:] == ["ended", "done"]


def test_an_interrupt_ends_the_others_too(tmp_path):
    with Job("interrupted", 3, tmp_path) as job:
        job.await_line("running")
        for rank in (1, 2):
            wait_until_asleep(job.ranks[rank].pid)
        job.ranks[1].send_signal(signal.SIGINT)
        assert job.ranks[1].stdout.readline() == "KeyboardInterrupt\n"
        assert "rank 1 gave up: KeyboardInterrupt" in job.ranks[2].stderr.read()
        assert job.ranks[2].wait(20) == 1


def test_200_groups_in_one_process_leave_nothing(tmp_path):
    with Job("cycles", 2, tmp_path) as job:
        assert job.results() == [["done"]] * 2
