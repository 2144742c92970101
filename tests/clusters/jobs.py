"""The jobs that every cluster runs in these tests, and what each of them promises."""

import os
import signal
import sys

from tests.clusters.stage import ROOT, until

ENV = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1", "TOKEN": "a-private-word"}
LIMIT_S = 170
RIGHT = "of the digits are right"


def words(options, *counts_and_program):
    *counts, program = counts_and_program
    module = ("-m", f"tests.clusters.programs.{program}")
    return [sys.executable, "-m", "bireme", "run", *options, *counts, sys.executable, *module]


def learns_with_servers(stage, folder, *options, before=()):
    """Two workers, two servers and a scheduler read the digits, and leave nothing."""
    _learns(stage, folder, [*before, *words(options, "-n", "2", "-s", "2", "servers")])


def learns_without(stage, folder, *options, before=()):
    """Two workers that reduce their gradients read the digits, and leave nothing."""
    _learns(stage, folder, [*before, *words(options, "-np", "2", "allreduce")])


def _learns(stage, folder, command):
    with stage.nothing_left():
        ended = stage.run(command, env=ENV, folder=folder, limit_s=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for rank in (0, 1):
        assert f"W[{rank}] | rank {rank}: 0.9" in ended.stdout
    assert ended.stdout.count(RIGHT) == 2


def dies(stage, folder, *options, before=()):
    """Rank 1 ends with exit code 3: so does the job, with its name, and nothing is left."""
    command = [*before, *words(options, "-np", "2", "dying"), "3"]
    with stage.nothing_left():
        ended = stage.run(command, env=ENV, folder=folder, limit_s=LIMIT_S)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 3, said
    assert "W[1] on " in said
    assert " ended with exit code 3 after " in said


def is_stopped(stage, folder, *options, before=(), signum=signal.SIGINT, code=130):
    """A signal ends a job that would run for ever; no command line has shown anything private."""
    command = [*before, *words(options, "-np", "2", "dying"), "for ever"]
    with stage.nothing_left(limit_s=30):
        with stage.start(command, env=ENV, folder=folder) as launcher:
            seen = []
            until(lambda: _has_both(launcher, seen), lambda: f"both run: {seen}", LIMIT_S)
            lines = " ".join(stage.processes().values())
            os.kill(_launcher_of(stage, launcher), signum)
            rest = launcher.stdout.read()
            status = launcher.wait(60)
        assert "for ever" in lines
        assert ENV["TOKEN"] not in lines
        assert "BIREME_SECRET" not in lines
        assert "KEY=" not in lines
    if code is not None:
        assert status == code, "".join(seen) + rest


def _launcher_of(stage, started):
    """Return the number of ``bireme run``, which something else may have started."""
    found = [pid for pid, line in stage.processes().items() if " -m bireme run " in line]
    inner = [pid for pid in found if not stage.processes()[pid].startswith("salloc")]
    return started.inner_pid if started.inner_pid in inner else inner[0]


def _has_both(launcher, seen):
    seen.append(launcher.stdout.readline())
    text = "".join(seen)
    return "rank 0 on" in text and "rank 1 on" in text
