"""The flags of MXNet's launch.py, verbatim."""

import argparse

import pytest

from bireme import cli
from bireme.errors import ConfigError
from bireme.launch.launchpy import add_launch_command, as_run_arguments, notices_of_launch


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_launch_command(parser.add_subparsers())
    return parser.parse_args(["launch", *arguments])


def made(*arguments, env=None):
    return as_run_arguments(parsed(*arguments), env or {})


def test_as_many_servers_as_workers():
    assert made("-n", "2", "python", "train.py", "--x", "1") == [
        *("-n", "2", "-s", "2", "--", "python", "train.py", "--x", "1")
    ]


def test_every_flag():
    assert made(
        *("-n", "4", "-s", "1", "-H", "hosts", "--launcher", "ssh", "--sync-dst-dir", "/tmp/x"),
        *("--env", "A", "--env", "GONE", "--env-server", "OMP:3", "--env-worker", "URL:http://x:1"),
        *("--env-worker", "B=2:3", "--p3", "python", "train.py"),
        env={"A": "1"},
    ) == [
        *("-n", "4", "-s", "1", "--hostfile", "hosts", "--launcher", "ssh"),
        *("--sync-dir", "/tmp/x", "--env", "A", "--env-server", "OMP=3"),
        *("--env-worker", "URL=http://x:1", "--env-worker", "B=2:3", "--", "python", "train.py"),
    ]


def test_the_default_that_failed_there_is_this_machine():
    assert "--launcher" not in made("-n", "1", "--launcher", "ssh", "true")
    assert made("-n", "1", "--launcher", "local", "true")[4:6] == ["--launcher", "local"]
    options = parsed("-n", "1", "--launcher", "ssh", "--p3", "true")
    assert notices_of_launch(options) == [
        "--p3 has no effect: priorities are always on",
        "--launcher ssh without -H FILE starts everything on this machine",
    ]


def test_a_command_in_one_word_goes_to_a_shell():
    assert made("-n", "1", "python train.py > log")[-4:] == [
        *("--", "/bin/sh", "-c", "python train.py > log")
    ]


@pytest.mark.parametrize("text", ["A", ":1", ""])
def test_what_is_no_variable(text):
    with pytest.raises(ConfigError, match="--env-server takes NAME:VALUE"):
        made("-n", "1", "--env-server", text, "true")


def test_the_flags_are_pinned(capsys):
    parser = argparse.ArgumentParser()
    launch = add_launch_command(parser.add_subparsers())
    flags = {name for action in launch._actions for name in action.option_strings}
    assert flags == {
        *("-h", "--help", "-n", "--num-workers", "-s", "--num-servers", "-H", "--hostfile"),
        *("--sync-dst-dir", "--launcher", "--env", "--env-server", "--env-worker", "--p3"),
    }
    with pytest.raises(SystemExit):
        parsed("true")
    assert "-n" in capsys.readouterr().err


def test_by_the_command_line(capfd):
    code = cli.main(["launch", "-n", "1", "-s", "1", "--env-worker", "A:x y", "echo [$A]"])
    assert code == 0
    assert sorted(capfd.readouterr().out.splitlines()) == [
        "H    | []",
        "S[0] | []",
        "W[0] | [x y]",
    ]
