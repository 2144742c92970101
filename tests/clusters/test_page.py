"""The commands of ``docs/launch.md``, word for word, on the clusters that they are for.

The script that they start is a small one: what matters is that the right processes run it.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from tests.clusters.jobs import ENV
from tests.clusters.stage import ROOT

PAGE = (ROOT / "docs" / "launch.md").read_text()
SCRIPT = """
import os, sys
role, rank = os.environ["BIREME_ROLE"], os.environ["BIREME_RANK"]
print(f"{role} {rank} on {os.uname().nodename}:", *sys.argv[1:], flush=True)
"""
NEEDS_MORE = ("ann@", "-iface")
"""What commands need that the stage has not: another user, a network card of some name."""
pytestmark = pytest.mark.timeout(500)


def blocks(section):
    """Return the blocks of code in a section of the page."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(section):
    scripts = [block for block in blocks(section) if not block.startswith("#!")]
    joined = "".join(scripts).replace("\\\n", " ").splitlines()
    shell = [line for line in joined if line.startswith(("bireme ", "salloc ", "sbatch "))]
    assert shell, section
    return [line for line in shell if not any(words in line for words in NEEDS_MORE)]


def batch_file(section, name):
    (text,) = (block for block in blocks(section) if block.startswith("#!/bin/bash"))
    return {name: text}


def run(stage, folder, line, files=()):
    """Type a command as a user would, in a project with the examples' names."""
    (folder / "examples").mkdir()
    for name in ("examples/train_mnist.py", "train.py"):
        (folder / name).write_text(SCRIPT)
    for name, text in dict(files).items():
        # A home of one's own, which a cluster would look up in the system's list of users.
        (folder / name).write_text(text.replace("~/", f"{folder}/"))
    (folder / "nodes").write_text("leda\nleda\ncastor\ncastor\n")
    (folder / ".venv").symlink_to(sys.prefix)
    env = {
        **ENV,
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{stage.env['PATH']}",
        "PBS_NODEFILE": str(folder / "nodes"),
        "WANDB_API_KEY": "a-key",
    }
    return stage.run(["sh", "-c", line], env=env, folder=folder, limit_s=400)


def is_whole(text, *, num_servers, num_workers=4):
    """Whether the right processes have run, and nobody else."""
    ran = re.findall(r"(scheduler|server|worker) (\d+) on (\S+):", text)
    wanted = [("worker", str(rank)) for rank in range(num_workers)]
    wanted += [("server", str(rank)) for rank in range(num_servers)]
    wanted += [("scheduler", "0")] if num_servers else []
    assert sorted(each[:2] for each in ran) == sorted(wanted), text
    assert {host for _, _, host in ran} == {"node-a", "node-b"}


def check(stage, folder, line, files=()):
    with stage.nothing_left():
        ended = run(stage, folder, line, files)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    if "doctor" in line:
        assert "leda -> castor: from 10.77.0.2 (eth0) to 10.77.0.3" in ended.stdout
        return
    is_whole(ended.stdout, num_servers=0 if "-np" in line else 2)


@pytest.mark.parametrize("line", commands("Hosts by ssh"))
def test_hosts_by_ssh(hosts, tmp_path, line):
    check(hosts, tmp_path, line)


def test_are_the_hosts_fit(hosts, tmp_path):
    (line,) = commands("Are the hosts fit\\?")
    check(hosts, tmp_path, line)


def test_a_job_file(hosts, tmp_path):
    (text,) = blocks("Job files")
    check(hosts, tmp_path, "bireme run --config job.yaml", {"job.yaml": text})
    assert (tmp_path / "logs" / "worker-3.log").exists()


@pytest.mark.parametrize("line", commands("MPI"))
def test_mpi(open_mpi, tmp_path, line):
    check(open_mpi, tmp_path, line)


@pytest.mark.parametrize("line", commands("Slurm"))
def test_slurm(slurm, tmp_path, line):
    check(slurm, tmp_path, line)


def test_a_batch_file_for_slurm(slurm, tmp_path):
    ended = run(slurm, tmp_path, "sbatch --wait --output=out job.sh", batch_file("Slurm", "job.sh"))
    assert ended.returncode == 0, ended.stderr
    is_whole((tmp_path / "out").read_text(), num_servers=2)


@pytest.mark.parametrize("line", commands("Grid Engine"))
def test_grid_engine(grid_engine, tmp_path, line):
    with grid_engine.nothing_left():
        ended = run(grid_engine, tmp_path, line)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(re.findall(r"(?:scheduler|server|worker) \d+ on node-[ab]:", ended.stdout)) == 7


def test_a_script_for_grid_engine(grid_engine, tmp_path):
    ended = run(grid_engine, tmp_path, "qsub -sync y job.sh", batch_file("Grid Engine", "job.sh"))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (output,) = tmp_path.glob("mnist.o*")
    is_whole(output.read_text(), num_servers=2)
    assert os.listdir(tmp_path / "examples") == ["train_mnist.py"]
