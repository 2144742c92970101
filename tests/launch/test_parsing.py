"""What stands before the command is ours, and what stands behind it is not."""

import argparse

import pytest

from bireme.launch.parsing import CommandParser


@pytest.fixture
def parser():
    made = CommandParser(prog="run", allow_abbrev=False)
    made.add_argument("-n", "--num-workers", type=int)
    made.add_argument("-np", type=int)
    made.add_argument("-hostfile")
    made.add_argument("--network-interface")
    made.add_argument("--network-interfaces")
    made.add_argument("--dry-run", action="store_true")
    made.add_argument("arguments", nargs=argparse.REMAINDER)
    return made


COMMAND = ["train.py", "--network", "mlp", "-ho", "x", "--dry-run", "--", "-n", "y"]


@pytest.mark.parametrize("options", [["-n", "2"], ["-n2"], ["--num-workers=2"], ["-n", "2", "--"]])
def test_the_command_is_left_alone(parser, options):
    read = parser.parse_args([*options, *COMMAND])
    assert (read.num_workers, read.dry_run) == (2, False)
    command = read.arguments
    assert (command[1:] if command[0] == "--" else command) == COMMAND


def test_options_without_values(parser):
    read = parser.parse_args(["--dry-run", "-np", "3", "--network-interface", "eth0", "true"])
    assert (read.dry_run, read.np, read.network_interface) == (True, 3, "eth0")
    assert read.arguments[-1] == "true"


def test_no_command(parser):
    assert parser.parse_args(["-n", "2"]).arguments == []


@pytest.mark.parametrize("wrong", [["--network", "mlp"], ["--num-w", "2", "true"], ["-n"]])
def test_what_is_wrong_before_the_command(parser, wrong, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(wrong)
    assert "error: " in capsys.readouterr().err


def test_a_parser_without_a_command_is_as_ever():
    parser = CommandParser(prog="other")
    parser.add_argument("file")
    parser.add_argument("--out")
    read = parser.parse_args(["a", "--out", "b"])
    assert (read.file, read.out) == ("a", "b")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("--num-wrkers", "did you mean --num-workers"), ("--xyzzy=1", "run --help lists all")],
)
def test_a_misspelt_option_is_named_with_what_was_meant(parser, wrong, hint, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args([wrong, "3", "train.py"])
    error = capsys.readouterr().err
    assert f"there is no option {wrong.partition('=')[0]}; " in error
    assert hint in error
