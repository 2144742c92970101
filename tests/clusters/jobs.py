"""The jobs that every cluster runs in these tests, and what each of them promises."""

import os
import re
import signal
import sys
from pathlib import Path

from tests.clusters.programs.dying import LET_GO
from tests.clusters.stage import NODES, ROOT, until

ENV = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1", "TOKEN": "a-private-word"}
LIMIT_S = 400
COPY = "/run/copied"
"""A folder that each host has in a file system of its own."""
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


def is_copied(stage, folder, *options, before=(), num_copies=2):
    """Files come along to a folder of every host's own, but to where they are already."""
    for host in NODES:
        stage.run(["rm", "-rf", COPY], host=host, check=True)
    (folder / "word").write_text("a word")
    command = [*before, *words((*options, "--sync-dir", COPY), "-np", "2", "reading")]
    with stage.nothing_left():
        ended = stage.run(command, env=ENV, folder=folder, limit_s=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(re.findall(r"a word on node-[ab] in /\S+$", ended.stdout, re.MULTILINE)) == 2
    assert ended.stdout.count(f" in {COPY}\n") == num_copies, ended.stdout
    assert ended.stdout.count(f" in {folder}\n") == 2 - num_copies


def is_submitted(stage, folder, launcher, *options):
    """A job that nobody stays for is asked about, and ended, by its number."""

    def job(verb, number):
        ask = [sys.executable, "-m", "bireme", "job", verb, number, "--launcher", launcher]
        return stage.run(ask, env=ENV, folder=folder)

    command = [*words(options, "-np", "2", "dying"), "for ever"]
    with stage.nothing_left(limit_s=40):
        submitted = stage.run(command, env=ENV, folder=folder, check=True)
        found = re.search(r"bireme: (\d+) has been submitted", submitted.stderr)
        assert found, submitted.stderr
        number = found[1]
        until(lambda: _both(job("logs", number).stdout), lambda: job("logs", number), LIMIT_S)
        assert job("status", number).stdout.split()[-1] == "running"
        assert job("cancel", number).returncode == 0
        until(lambda: job("status", number).stdout.split()[-1:] == ["ended"], "it has ended", 40)
    return number


def learns_by_itself(stage, folder, *starter, env=None):
    """A script with Horovod's names learns to read digits although no launcher of ours is there."""
    command = [*starter, sys.executable, "-m", "tests.clusters.programs.by_names"]
    with stage.nothing_left():
        ended = stage.run(command, env={**ENV, **(env or {})}, folder=folder, limit_s=LIMIT_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(RIGHT) == 2
    return sorted(line for line in ended.stdout.splitlines() if " on " in line)


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
            status = launcher.wait(120)
        assert "for ever" in lines
        assert lines.count(f"sleep {LET_GO}") == 2
        assert ENV["TOKEN"] not in lines
        assert "BIREME_SECRET" not in lines
        assert "KEY=" not in lines
    if code is not None:
        assert status == code, "".join(seen) + rest


def is_hit(stage, folder, *options, before=(), who="agent", code=255):
    """SIGKILL to an agent, or to a rank, ends the job by its name; nothing is left anywhere."""
    command = [*before, *words(options, "-np", "2", "dying"), "for ever"]
    with stage.nothing_left(limit_s=30):
        with stage.start(command, env=ENV, folder=folder) as launcher:
            seen = []
            until(lambda: _has_both(launcher, seen), lambda: f"both run: {seen}", LIMIT_S)
            found = [pid for pid, line in stage.processes().items() if line.endswith("for ever")]
            ranks = [pid for pid in found if "dying" in stage.processes()[pid] and is_rank(pid)]
            assert len(ranks) == 2, stage.processes()
            os.kill(parent_of(ranks[0]) if who == "agent" else ranks[0], signal.SIGKILL)
            rest = launcher.stdout.read()
            status = launcher.wait(120)
    said = "".join(seen) + rest
    assert status == code, said
    how = "was killed by SIGKILL" if who == "rank" else "was lost with its host"
    assert re.search(rf"W\[[01]\] on \S+ {how}", said), said


def is_rank(pid):
    """Whether a process of the job's is a rank, and not what has started it."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return line[1:3] == [b"-m", b"tests.clusters.programs.dying"]


def parent_of(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^PPid:\s*(\d+)$", status, re.MULTILINE)[1])


def _launcher_of(stage, started):
    """Return the number of ``bireme run``, which something else may have started."""
    found = [pid for pid, line in stage.processes().items() if " -m bireme run " in line]
    inner = [pid for pid in found if not stage.processes()[pid].startswith("salloc")]
    return started.inner_pid if started.inner_pid in inner else inner[0]


def _has_both(launcher, seen):
    seen.append(launcher.stdout.readline())
    return _both("".join(seen))


def _both(text):
    return "rank 0 has let go" in text and "rank 1 has let go" in text
