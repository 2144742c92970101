"""How whole jobs end: by a dead server or scheduler, by Ctrl-C, and without traces."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest
from tests.integration.forking import Job, script
from tests.launch.processes import shared_memory, wait_until_gone

pytestmark = pytest.mark.slow

SCRIPT = script("script.py")
SMALL = ("-n", 2, "-s", 2)
LONG = {"STEPS": 5000, "PAUSE": 0.01}


def descendants(pid):
    """Return every process below ``pid``: the job's, and the launcher's guard."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(fields[1])
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def sockets():
    """Return the machine's Unix sockets that have a name, by inode."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[6]: row[7] for row in rows if len(row) > 7}


def sockets_of(processes):
    """Return the names that these processes listen at."""
    held = set()
    for pid in processes:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                held.add(os.readlink(file))
    return {name for inode, name in sockets().items() if f"socket:[{inode}]" in held}


class Watched:
    """A job of which nothing may be left."""

    def __init__(self, folder, *options, **env):
        self.before = shared_memory()
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        env["TMPDIR"] = self.temporary
        self.job = Job(folder, [*SMALL, *options], SCRIPT, **env)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.job.__exit__(*error)

    def run(self, steps=2):
        """Return the processes by node, once both workers have made some steps."""
        self.nodes = self.job.pids(5)
        for rank in range(2):
            self.job.await_lines(f"W[{rank}] | step", steps)
        self.processes = descendants(self.job.process.pid)
        assert self.processes >= set(self.nodes.values())
        assert len(self.processes) == 6
        self.names = sockets_of(self.processes)
        assert any("bireme" in name for name in self.names)
        return self.nodes

    def nothing_is_left(self):
        wait_until_gone(self.processes, 20)
        assert self.names.isdisjoint(sockets().values())
        assert shared_memory(self.processes) <= self.before
        assert list(self.temporary.glob("*bireme*")) == []
        assert not list((self.job.folder / "bireme").glob("*"))


@pytest.mark.parametrize("name", ["S[1]", "H", "W[0]"])
def test_kill_9_of_any_one_ends_the_job_and_leaves_nothing(tmp_path, name):
    with Watched(tmp_path, **LONG) as watched:
        os.kill(watched.run()[name], signal.SIGKILL)
        assert watched.job.end() == 137
        err = watched.job.err
        assert f"{name} was killed by SIGKILL" in err[err.index("bireme: ") :]
        who = {"H": r"the scheduler on \S+ is gone"}.get(name, rf"{re.escape(name)} on \S+: ")
        others = [each for each in watched.nodes if each != name]
        for other in others:
            assert re.search(rf"^{re.escape(other)} +\| .*JobAborted: {who}", err, re.M), err
        watched.nothing_is_left()


def test_kill_9_of_the_launcher_leaves_nothing(tmp_path):
    with Watched(tmp_path, **LONG) as watched:
        watched.run()
        watched.job.process.kill()
        watched.job.process.join()
        wait_until_gone(watched.processes, 20)


@pytest.mark.parametrize("close", ["", "1"])
def test_a_clean_end_leaves_nothing(tmp_path, close):
    with Watched(tmp_path, STEPS=30, PAUSE=0.01, NO_CLOSE=close) as watched:
        watched.run()
        assert watched.job.end() == 0
        assert watched.job.err == ""
        watched.nothing_is_left()


def test_ctrl_c_once_lets_workers_use_the_servers(tmp_path):
    with Watched(tmp_path, **LONG, SAVE=1) as watched:
        watched.run()
        os.kill(watched.job.process.pid, signal.SIGINT)
        assert watched.job.end() == 130
        # The last round may be that of one of them alone: the other had left.
        assert len(re.findall(r"saved [123]\.0", watched.job.out)) == 2
        assert watched.job.err.count("Traceback") == 0
        watched.nothing_is_left()


def test_ctrl_c_once_ends_workers_that_do_not_catch_it(tmp_path):
    with Watched(tmp_path, **LONG) as watched:
        watched.run()
        began_s = time.monotonic()
        os.kill(watched.job.process.pid, signal.SIGINT)
        assert watched.job.end() == 130
        assert time.monotonic() - began_s < 10
        assert "SIGINT: ending the job; once more ends it at once" in watched.job.err
        assert "KeyboardInterrupt" in watched.job.err
        watched.nothing_is_left()


def test_ctrl_c_twice_ends_everything_at_once(tmp_path):
    with Watched(tmp_path, **LONG, SAVE="hang") as watched:
        watched.run()
        os.kill(watched.job.process.pid, signal.SIGINT)
        watched.job.await_line("saving")
        os.kill(watched.job.process.pid, signal.SIGINT)
        assert watched.job.end() == 130
        assert "ending every process at once" in watched.job.err
        watched.nothing_is_left()


def test_two_jobs_on_one_machine_do_not_disturb_each_other(tmp_path):
    with (
        Watched(tmp_path / "a", **LONG) as dying,
        Watched(tmp_path / "b", STEPS=60, PAUSE=0.02) as living,
    ):
        dying.run()
        living.run()
        os.kill(dying.nodes["S[0]"], signal.SIGKILL)
        assert dying.job.end() == 137
        assert living.job.end() == 0
        values = re.findall(r"step \d+ (.*)", living.job.out)
        assert values == ["3.0"] * 120
        assert living.job.err == ""
