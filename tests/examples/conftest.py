"""Runs the examples: as processes for what they do, in this process for what they refuse."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def run_example():
    """Return a function that runs an example and returns what it printed."""

    def run(name, *arguments):
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


@pytest.fixture
def refusal(monkeypatch, capsys):
    """Return a function that runs an example that must refuse its options, and why it did."""

    def run(name, *arguments):
        monkeypatch.syspath_prepend(str(EXAMPLES))
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert caught.value.code == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"{name}: error: ")
        return last

    return run
