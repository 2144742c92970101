"""Forks, processes that load data, and signals, in jobs under Horovod's names."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.launch.processes import shared_memory, wait_until_asleep

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("programs") / "horovod_processes.py"
LIMIT_S = 200.0

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def ranks():
    """Start both ranks in a mode: ``ranks(mode)``; no launcher, so that each gets its signals."""
    before, started = shared_memory(), []

    def start(mode):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        local = {"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        path = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONWARNINGS": "ignore"}
        for rank in range(2):
            env = os.environ | where | local | path | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            started.append(
                subprocess.Popen(
                    [sys.executable, PROGRAM, mode],
                    env=env,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()
    assert shared_memory(process.pid for process in started) <= before


def ended(process):
    out, err = process.communicate(timeout=LIMIT_S)
    return out.split("\n")[:-1], process.returncode, err


def test_forked_children_are_refused_and_disturb_nobody(ranks):
    for process in ranks("forks"):
        lines, status, err = ended(process)
        assert status == 0, err
        assert lines == ["StateError", "StateError|StateError", "child", "done"]


def test_data_loaders_of_every_kind(ranks):
    for process in ranks("loaders"):
        lines, status, err = ended(process)
        assert status == 0, err
        kinds = ("fork", "spawn")
        assert lines == [
            *(f"{kind}|{float(sum(n * n for n in range(12)))}" for kind in kinds),
            "done",
        ]


def test_a_rank_that_waits_is_interrupted_at_once(ranks):
    waiting, late = ranks("waits")
    assert waiting.stdout.readline() == late.stdout.readline() == "running\n"
    wait_until_asleep(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    lines, status, err = ended(waiting)
    assert (lines, status) == (["KeyboardInterrupt", "done"], 0), err


def test_a_rank_that_was_interrupted_may_wait_again(ranks):
    waiting, late = ranks("waits_again")
    assert waiting.stdout.readline() == late.stdout.readline() == "running\n"
    wait_until_asleep(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    assert waiting.stdout.readline() == "KeyboardInterrupt\n"
    late.send_signal(signal.SIGUSR1)
    for process in (late, waiting):
        lines, status, err = ended(process)
        assert (lines, status) == (["done"], 0), err


def test_a_rank_that_waits_for_others_to_start_is_interrupted_at_once(ranks):
    waiting, _ = ranks("waits_for_a_start")
    assert waiting.stdout.readline() == "running\n"
    wait_until_asleep(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    # The other is late for 60 s.
    out, err = waiting.communicate(timeout=30)
    assert (out, waiting.returncode) == ("KeyboardInterrupt\ndone\n", 0), err


def test_a_handler_runs_while_a_rank_waits(ranks):
    waiting, late = ranks("hears")
    assert waiting.stdout.readline() == late.stdout.readline() == "running\n"
    wait_until_asleep(waiting.pid)
    waiting.send_signal(signal.SIGUSR1)
    assert waiting.stdout.readline() == "handled\n"
    assert waiting.poll() is None
    late.send_signal(signal.SIGUSR1)
    for process, rest in ((late, ["handled", "done"]), (waiting, ["done"])):
        lines, status, err = ended(process)
        assert (lines, status) == (rest, 0), err


def test_a_rank_that_is_terminated_is_named_on_the_others(ranks):
    waiting, late = ranks("waits")
    assert waiting.stdout.readline() == late.stdout.readline() == "running\n"
    late.send_signal(signal.SIGTERM)
    assert ended(late)[1] == -signal.SIGTERM
    lines, status, err = ended(waiting)
    assert lines[0].startswith("HorovodInternalError|"), err
    assert "rank 1 is lost" in lines[0]
    assert status == 0


def test_a_handler_that_exits_ends_a_rank_that_waits(ranks):
    waiting, late = ranks("exits_on_sigterm")
    assert waiting.stdout.readline() == late.stdout.readline() == "running\n"
    wait_until_asleep(waiting.pid)
    waiting.send_signal(signal.SIGTERM)
    assert ended(waiting)[1] == 7
