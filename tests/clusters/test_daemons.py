"""Each daemon runs a first job: where this fails, look at the installation and not at Bireme."""

import pytest

pytestmark = pytest.mark.timeout(240)
RANKS = "echo $OMPI_COMM_WORLD_RANK$PMI_RANK on $(hostname)"


def test_ssh_passes_words_and_exit_codes(hosts):
    ended = hosts.run(["ssh", "node-b", "hostname; exit 7"])
    assert (ended.returncode, ended.stdout) == (7, "node-b\n")


def test_hosts_without_ssh_to_them_refuse(hosts):
    ended = hosts.run(["ssh", "-p", "2223", "node-b", "true"])
    assert ended.returncode == 255
    assert "refused" in ended.stderr


def test_open_mpi_starts_a_process_on_each_host(open_mpi):
    line = ["mpirun.openmpi", "-np", "2", "--host", "node-a:1,node-b:1", "sh", "-c", RANKS]
    assert sorted(open_mpi.run(line, check=True).stdout.splitlines()) == [
        "0 on node-a",
        "1 on node-b",
    ]


def test_mpich_starts_processes_here(mpich):
    line = ["mpiexec.hydra", "-n", "2", "sh", "-c", RANKS]
    assert sorted(mpich.run(line, check=True).stdout.splitlines()) == ["0 on head", "1 on head"]


def test_slurm_runs_steps_from_outside_and_inside_of_an_allocation(slurm):
    both = ["0: node-a", "1: node-b"]
    step = ["srun", "-N2", "-n2", "-l", "hostname"]
    assert sorted(slurm.run(step, check=True).stdout.splitlines()) == both
    inside = slurm.run(["salloc", "-N2", *step], check=True)
    assert sorted(inside.stdout.splitlines()) == both


def test_slurm_runs_batch_scripts(slurm, tmp_path):
    script, output = tmp_path / "job.sh", tmp_path / "out"
    script.write_text("#!/bin/sh\nsrun -l hostname\nexit 5\n")
    line = ["sbatch", "--wait", "-N2", f"--output={output}", str(script)]
    ended = slurm.run(line)
    assert ended.returncode == 5, ended.stderr
    assert sorted(output.read_text().splitlines()) == ["0: node-a", "1: node-b"]


def test_grid_engine_runs_array_jobs(grid_engine, tmp_path):
    script = tmp_path / "task.sh"
    script.write_text("#!/bin/sh\necho task $SGE_TASK_ID\nexit $SGE_TASK_ID\n")
    line = ["qsub", "-sync", "y", "-t", "1-2", "-N", "tasks", "-j", "y", "-S", "/bin/sh"]
    ended = grid_engine.run([*line, "-o", str(tmp_path), str(script)])
    assert ended.returncode == 1, ended.stdout
    assert {path.read_text() for path in tmp_path.glob("tasks.o*")} == {"task 1\n", "task 2\n"}


def test_grid_engine_runs_jobs_over_hosts(grid_engine, tmp_path):
    worker, script = tmp_path / "worker.sh", tmp_path / "job.sh"
    worker.write_text("#!/bin/sh\nhostname\n")
    worker.chmod(0o755)
    script.write_text(
        "while read host slots queue rest; do\n"
        f"  qrsh -inherit -nostdin $host {worker}\n"
        "done <$PE_HOSTFILE\n"
    )
    line = ["qsub", "-sync", "y", "-pe", "mpi", "4", "-j", "y", "-S", "/bin/sh"]
    ended = grid_engine.run([*line, "-o", str(tmp_path / "out"), str(script)])
    assert ended.returncode == 0, ended.stdout
    assert sorted((tmp_path / "out").read_text().split()) == ["node-a", "node-b"]
