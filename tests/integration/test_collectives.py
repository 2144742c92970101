"""Ranks that are processes: deaths, forks and ends at odd moments."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("programs") / "collective_rank.py"
LIMIT_S = 50.0

pytestmark = pytest.mark.integration


@pytest.fixture
def job(tmp_path):
    """Start a rank of a job: ``job(mode, rank, size)``."""
    started = []

    def start(mode, rank, size):
        process = subprocess.Popen(
            [sys.executable, PROGRAM, mode, str(rank), str(size), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def await_file(path):
    limit_s = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < limit_s, f"no {path.name}"
        time.sleep(0.01)


@pytest.mark.parametrize("backend", ["bireme", "gloo"])
@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.parametrize("mode", ["small", "large", "waiting"])
def test_a_killed_rank_is_named_on_all_others_soon(
    job, tmp_path, mode, victim, backend, monkeypatch
):
    monkeypatch.setenv("TEST_BACKEND", backend)
    monkeypatch.setenv("TEST_IDLE_RANK", str(victim))
    ranks = [job(mode, rank, 3) for rank in range(3)]
    for rank in range(3):
        await_file(tmp_path / f"busy-{rank}")
    time.sleep(0.05)
    killed_s = time.time()
    ranks[victim].send_signal(signal.SIGKILL)
    for rank in range(3):
        out, err = ranks[rank].communicate(timeout=LIMIT_S)
        if rank != victim:
            assert ranks[rank].returncode == 0, err
            kind, at_s, text = out.split("|", 2)
            assert kind == "RankLost"
            assert f"rank {victim} is lost" in text
            # A second when the machine is idle.
            assert float(at_s) - killed_s < 5.0
            assert err == ""


def test_workers_of_a_data_loader_leave_the_engine_alone(job, tmp_path):
    ranks = [job("loader", rank, 2) for rank in range(2)]
    for rank in ranks:
        out, err = rank.communicate(timeout=LIMIT_S)
        assert (out, rank.returncode) == ("StateError|fine\n", 0), err


def test_a_process_that_ends_without_closing_is_noticed(job, tmp_path):
    ranks = [job("leaves", rank, 2) for rank in range(2)]
    out, err = ranks[0].communicate(timeout=LIMIT_S)
    assert out.startswith("RankLost|"), err
    ranks[1].communicate(timeout=LIMIT_S)
    assert ranks[1].returncode == 0


def test_nothing_is_left_behind(job, tmp_path):
    before = set(os.listdir("/dev/shm"))
    ranks = [job("once", rank, 2) for rank in range(2)]
    for rank in ranks:
        out, err = rank.communicate(timeout=LIMIT_S)
        assert (out, err, rank.returncode) == ("2.0\n", "", 0)
    assert {name for name in set(os.listdir("/dev/shm")) - before if "bireme" in name} == set()
