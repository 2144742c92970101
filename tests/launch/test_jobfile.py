"""Job files say what flags say; what they cannot say is named."""

import argparse

import pytest

from bireme import cli
from bireme.errors import ConfigError
from bireme.launch.command import add_run_command, job_spec, with_job_file
from bireme.launch.hosts import Host
from bireme.launch.jobfile import read_job_file


def spec(tmp_path, text, *arguments):
    (tmp_path / "job.yaml").write_text(text)
    parser = argparse.ArgumentParser()
    run = add_run_command(parser.add_subparsers())
    words = ["--config", str(tmp_path / "job.yaml"), *arguments]
    options = with_job_file(run, words, parser.parse_args(["run", *words]))
    return job_spec(options, {"TOKEN": "t"}), options


WHOLE = """
num-workers: 4
num_servers: 2
hosts: [leda:2, castor:2]
scheduler-host: castor
command: [python, train.py, --epochs, 3]
env: {MODE: fast, FLAG: true, TOKEN: null}
env-server: [OMP_NUM_THREADS=2]
output-dir: logs
start-timeout: 90
on-worker-death: wait
memory: 8GiB
time: "1:30:00"
cores: 2
verbose: false
"""


def test_a_whole_job(tmp_path):
    job, options = spec(tmp_path, WHOLE)
    assert (job.num_workers, job.num_servers) == (4, 2)
    assert job.hosts == (Host(name="leda", slots=2), Host(name="castor", slots=2))
    assert job.command == ("python", "train.py", "--epochs", "3")
    assert job.env == {"MODE": "fast", "FLAG": "true", "TOKEN": "t"}
    assert job.server_env == {"OMP_NUM_THREADS": "2"}
    assert (job.launch_timeout_s, job.settings.start_timeout_s) == (90, 90)
    assert (job.resources.memory_bytes, job.resources.time_s) == (8 << 30, 5400)
    assert options.verbose is False


def test_the_command_line_comes_first(tmp_path):
    job, _ = spec(tmp_path, WHOLE, "-n", "2", "--output-dir", "other", "python", "other.py")
    assert (job.num_workers, job.num_servers, job.output_dir) == (2, 2, "other")
    assert job.command == ("python", "other.py")


def test_a_command_as_a_shell_would_have_it(tmp_path):
    job, _ = spec(tmp_path, "command: python train.py 'two words'\nnum-proc: 2\n")
    assert job.command == ("python", "train.py", "two words")
    assert (job.num_workers, job.num_servers) == (2, 0)


def test_files_of_horovodrun(tmp_path):
    text = (
        "controller: gloo\n"
        "params: {fusion_threshold_mb: 32, cycle_time_ms: 10, hierarchical_allreduce: true}\n"
        "autotune: {enabled: true, log_file: log.txt, gaussian_process_noise: 0.2}\n"
        "timeline: {filename: t.json, mark_cycles: false}\n"
        "stall_check: {enabled: true, warning_time_seconds: 120}\n"
        "library_options: {num_nccl_streams: 2}\n"
        "logging: {level: INFO}\n"
    )
    job, _ = spec(tmp_path, text, "-np", "2", "true")
    assert job.env == {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_CYCLE_TIME": "10.0",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "log.txt",
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.2",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_STALL_CHECK_DISABLE": "0",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
        "HOROVOD_NUM_NCCL_STREAMS": "2",
        "HOROVOD_LOG_LEVEL": "info",
    }
    assert job.node_fields["log_level"] == "info"


def test_an_empty_file_says_nothing(tmp_path):
    assert spec(tmp_path, "", "-np", "2", "true")[0].num_workers == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num-worker: 2", "unknown key 'num-worker'; did you mean num-workers"),
        ("config: x", "unknown key 'config'"),
        ("num-workers: two", "num-workers cannot be 'two'"),
        ("num-workers: [1]", "num-workers takes one value"),
        ("launcher: lokal", "launcher is one of local"),
        ("verbose: 3", "verbose must be true or false"),
        ("command: {a: b}", "command must be a string or a list"),
        ("env: x", "env takes a list, or names and values"),
        ("params: {cycle_time: 1}", "unknown key 'cycle_time'; there are fusion_threshold_mb"),
        ("- a", "must have keys and values"),
        ("1: a", "must have keys and values"),
        ("a: [", "is no YAML"),
        ("a: !!python/object/apply:os.system ['false']", "is no YAML"),
    ],
)
def test_what_a_file_cannot_say(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        spec(tmp_path, text)


def test_a_file_that_is_not_there(capsys):
    with pytest.raises(ConfigError, match="cannot read the job file"):
        read_job_file("/no/such/file")
    assert cli.main(["run", "--config", "/no/such/file"]) == 2
    assert "cannot read the job file" in capsys.readouterr().err


def test_by_the_command_line(tmp_path, capsys):
    (tmp_path / "job.yaml").write_text("num-proc: 2\ncommand: python train.py\n")
    assert cli.main(["run", "--config", str(tmp_path / "job.yaml"), "--dry-run"]) == 0
    assert "python train.py" in capsys.readouterr().out
