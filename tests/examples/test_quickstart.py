import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "quickstart.py"


def run(*arguments):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=SCRIPT.parents[1],
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_it_learns_and_says_what_to_type_next():
    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.strip().splitlines()
    assert lines[0] == "1438 digits to train on, 359 held out, device store"
    (accuracy,) = re.match(r"([\d.]+)% of the held-out digits right\. Next: .+", lines[-1]).groups()
    assert float(accuracy) > 96
    rows = [line.split() for line in lines if re.match(r" *\d+/10 ", line)]
    assert len(rows) == 10
    assert all(row[-2:] == ["75.0%", "25.0%"] for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_it_fails_when_the_net_has_not_learned():
    done = run("--num-epochs", "1", "--lr", "0.0001")
    assert done.returncode == 1
    assert "96% expected" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_a_cluster_gives_the_parameters_of_one_process(tmp_path):
    saved = str(tmp_path / "one.safetensors")
    assert run("--num-epochs", "4", "--save", saved).returncode == 0
    command = [
        sys.executable,
        "-m",
        "bireme",
        "run",
        "-n",
        "2",
        "-s",
        "2",
        sys.executable,
        str(SCRIPT),
    ]
    options = ["--kv-store", "dist_sync", "--num-epochs", "4", "--compare", saved]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    (apart,) = re.search(r"parameters of one process: ([-.e\d]+)\.", done.stdout).groups()
    assert float(apart) < 1e-9


@pytest.mark.slow
def test_help():
    done = run("--help")
    assert done.returncode == 0
    assert "example: " in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "x"), "'x'"),
        (("--kv-store", "devise"), "unknown store type 'devise'"),
        (("--num-epochs", "0"), "--num-epochs must be at least 1, got 0"),
        (("--lr", "nan"), "lr must be"),
        (("--save", "no/such/file"), "--save no/such/file: there is no such folder"),
        (("--compare", "no_file"), "--compare no_file: there is no such file"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr.splitlines()[-1]


def test_it_stays_short():
    assert len(SCRIPT.read_text().splitlines()) < 150
