"""The command line becomes the job that it describes."""

import argparse
import os
from pathlib import Path

import pytest

import bireme
from bireme.errors import ConfigError
from bireme.launch.command import add_run_command, job_spec, run
from bireme.launch.hosts import Host
from bireme.settings import Security
from bireme.types import DeathPolicy


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_run_command(parser.add_subparsers())
    return parser.parse_args(["run", *arguments])


def spec(*arguments, env=None):
    return job_spec(parsed(*arguments), env or {})


def test_the_smallest_job():
    job = spec("-n", "2", "python", "train.py")
    assert job.command == ("python", "train.py")
    assert (job.num_workers, job.num_servers) == (2, 1)
    assert job.settings.death_policy is DeathPolicy.ABORT
    assert len(job.node_fields["secret"]) == 64
    assert job.node_fields["job"].startswith("job-")


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        (("-np", "3"), (3, 0)),
        (("--num-proc", "3"), (3, 0)),
        (("-np", "3", "-s", "2"), (3, 2)),
        (("-n", "3", "-s", "0"), (3, 0)),
        (("--num-workers", "3"), (3, 1)),
    ],
)
def test_with_and_without_servers(arguments, counts):
    job = spec(*arguments, "true")
    assert (job.num_workers, job.num_servers) == counts


def test_every_option():
    job = spec(
        *("-n", "3", "-s", "2", "--kv-store", "dist_async", "--output-dir", "logs"),
        *("--env", "A=1", "--env", "B=x=y", "--env", "C=", "--on-worker-death", "wait"),
        *("--max-restarts", "7", "--", "python", "train.py", "-n", "9", "--env", "Z"),
    )
    assert job.command == ("python", "train.py", "-n", "9", "--env", "Z")
    assert (job.num_workers, job.num_servers, job.max_restarts) == (3, 2, 7)
    assert job.node_fields["kvstore"] == "dist_async"
    assert job.output_dir == "logs"
    assert job.env == {"A": "1", "B": "x=y", "C": ""}
    assert job.settings.death_policy is DeathPolicy.WAIT


def test_hosts_and_what_goes_there(tmp_path, monkeypatch):
    (tmp_path / "hosts").write_text("leda slots=4\ncastor:2\n")
    monkeypatch.chdir(tmp_path)
    job = spec(
        *("-n", "3", "--hostfile", "hosts", "--scheduler-host", "head", "--start-timeout", "7"),
        *("--env", "TOKEN", "--env-server", "A=1", "--env-worker", "B=2", "true"),
        env={"TOKEN": "two words"},
    )
    assert job.hosts == (Host(name="leda", slots=4), Host(name="castor", slots=2))
    assert (job.scheduler_host, job.workdir) == ("head", str(tmp_path))
    assert (job.launch_timeout_s, job.settings.start_timeout_s) == (7, 7)
    assert (job.env, job.server_env, job.worker_env) == (
        {"TOKEN": "two words"},
        {"A": "1"},
        {"B": "2"},
    )
    assert spec("-n", "1", "-H", "a:2", "--workdir", "/w", "true").workdir == "/w"


def test_a_dry_run_shows_the_plan_and_no_secret(capsys):
    options = parsed("-n", "2", "-H", "leda:1,castor:1", "--dry-run", "python", "train.py")
    assert run(options, {"BIREME_SECRET": "0123456789abcdef"}) == 0
    shown = capsys.readouterr().out
    assert "0123456789abcdef" not in shown
    assert "python train.py" in shown
    assert shown.count("\nssh ") == 2


def test_flags_of_horovodrun(monkeypatch):
    job = spec(
        *("-np", "2", "--network-interfaces", "eth1,eth0", "--output-filename", "out"),
        *("--log-level", "trace", "--cycle-time-ms", "3", "true"),
        env={"HOROVOD_START_TIMEOUT": "45"},
    )
    assert job.env == {
        "HOROVOD_CYCLE_TIME": "3.0",
        "HOROVOD_LOG_LEVEL": "trace",
        "NCCL_SOCKET_IFNAME": "eth1,eth0",
        "GLOO_SOCKET_IFNAME": "eth1,eth0",
        "HOROVOD_GLOO_IFACE": "eth1",
    }
    assert (job.node_fields["interface"], job.node_fields["log_level"]) == ("eth1", "debug")
    assert (job.output_dir, job.output_by_rank, job.launch_timeout_s) == ("out", True, 45)
    with pytest.raises(ConfigError, match="HOROVOD_START_TIMEOUT must be a number"):
        spec("-np", "2", "true", env={"HOROVOD_START_TIMEOUT": "soon"})


def test_a_name_of_the_users():
    assert spec("-np", "1", "--job-name", "digits", "true").name.startswith("digits-")
    with pytest.raises(ConfigError, match="--job-name takes letters"):
        spec("-np", "1", "--job-name", "a/b", "true")


def test_a_staleness_reaches_every_process_and_is_checked():
    job = spec("-n", "1", "--staleness", "3", "true", env={"BIREME_STALENESS": "5"})
    assert job.settings.to_env()["BIREME_STALENESS"] == "3"
    with pytest.raises(ConfigError, match="staleness must be >= 0"):
        spec("-n", "1", "--staleness", "-1", "true")


def test_jobs_do_not_share_secrets_or_names():
    one, two = (spec("-n", "1", "true").node_fields for _ in range(2))
    assert one["secret"] != two["secret"]
    assert one["job"] != two["job"]


def test_arguments_come_before_the_environment():
    env = {
        "BIREME_ON_WORKER_DEATH": "continue",
        "BIREME_KVSTORE": "dist",
        "BIREME_PUSH_TIMEOUT": "9",
    }
    job = spec("-n", "1", "true", env=env)
    assert job.settings.death_policy is DeathPolicy.CONTINUE
    assert job.settings.push_timeout_s == 9
    assert job.node_fields["kvstore"] == "dist"
    job = spec("-n", "1", "--on-worker-death", "abort", "--kv-store", "local", "true", env=env)
    assert job.settings.death_policy is DeathPolicy.ABORT
    assert job.node_fields["kvstore"] == "local"


def test_security_of_the_environment():
    assert "secret" not in spec("-n", "1", "true", env={"BIREME_SECURITY": "off"}).node_fields
    given = spec("-n", "1", "true", env={"BIREME_SECRET": "0123456789abcdef"}).node_fields
    assert given["secret"] == "0123456789abcdef"
    by_file = spec("-n", "1", "true", env={"BIREME_SECRET_FILE": "/run/s"}).node_fields
    assert by_file["secret_file"] == "/run/s"
    assert "secret" not in by_file
    assert by_file.get("security", Security.AUTH) is Security.AUTH


def test_a_secret_by_file(tmp_path):
    fields = spec("-n", "1", "--secret-file", str(tmp_path / "s"), "true").node_fields
    assert fields["secret_file"] == str(tmp_path / "s")
    assert "secret" not in fields
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-n", "1"), "a job needs a command"),
        (("-n", "1", "--"), "a job needs a command"),
        (("-n", "0", "true"), "num_workers must be >= 1 and <= 1048576, got 0"),
        (("-n", "1", "-s", "-1", "true"), "num_servers must be >= 0"),
        (("-n", "1", "-np", "2", "true"), "-n 1 starts workers with servers and -np 2 without"),
        (("true",), "how many workers"),
        (("-n", "1", "--env", "A", "true"), "--env A: no such variable is set here"),
        (("-n", "1", "--env-server", "A", "true"), "--env-server A: no such variable"),
        (("-n", "1", "-H", "a:1", "--hostfile", "f", "true"), "-H and --hostfile both name"),
        (("-n", "1", "--hostfile", "/no/file", "true"), "cannot read the host file"),
        (("-n", "1", "--env", "=1", "true"), "--env takes NAME=VALUE"),
        (("-n", "1", "--env", "BIREME_RANK=1", "true"), "the launcher itself sets BIREME_RANK"),
    ],
)
def test_what_is_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        spec(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [("-np", "2.5", "true"), ("-n", "two", "true"), ("-n", "1", "--launcher", "lokal", "true")],
)
def test_what_the_parser_refuses(arguments, capsys):
    with pytest.raises(SystemExit):
        parsed(*arguments)
    assert "usage" in capsys.readouterr().err


def test_modules_of_optimizers_add_to_those_of_the_environment():
    env = {"BIREME_ALLOWED_OPTIMIZERS": "one"}
    found = spec("-n", "1", "--allow-optimizer", "two", "--allow-optimizer", "b:C", "true", env=env)
    assert found.settings.allowed_optimizers == "one,two,b:C"
    with pytest.raises(ConfigError, match="not-a-module"):
        spec("-n", "1", "--allow-optimizer", "not-a-module", "true")


def test_as_horovod_puts_the_alias_first_on_pythons_path(tmp_path):
    folder = str(Path(bireme.__file__).parent / "horovod" / "bootstrap")
    job = spec("--as-horovod", "-np", "2", "true", env={"PYTHONPATH": "/mine"})
    assert job.inherited["PYTHONPATH"] == f"{folder}{os.pathsep}/mine"
    job = spec("--as-horovod", "-np", "2", "--env", "PYTHONPATH=/job", "true")
    assert job.env["PYTHONPATH"] == f"{folder}{os.pathsep}/job"
    assert spec("-np", "2", "true", env={"PYTHONPATH": "/mine"}).inherited["PYTHONPATH"] == "/mine"


def test_resources_that_nobody_is_asked_for(capsys):
    options = parsed("-np", "1", "--gpus", "2", "--queue", "long", "true")
    assert run(options, dict(os.environ)) == 0
    said = capsys.readouterr().err
    assert "--gpus has no effect: --launcher local takes what its hosts have" in said
    assert "--queue has no effect" in said
    assert "--memory" not in said
