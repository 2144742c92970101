"""Every backend is found by its name, has a file of that name, and what a backend needs."""

import argparse
from pathlib import Path

import pytest

from bireme.errors import ConfigError
from bireme.launch import backends
from bireme.launch.command import add_run_command
from bireme.launch.registry import BACKENDS, find_backend

FILES = [
    path for path in Path(backends.__file__).parent.glob("*.py") if not path.name.startswith("__")
]


def test_flags_registry_and_files_agree():
    assert sorted(path.stem for path in FILES) == sorted(BACKENDS)
    parser = argparse.ArgumentParser()
    run = add_run_command(parser.add_subparsers())
    (launcher,) = (action for action in run._actions if "--launcher" in action.option_strings)
    assert list(launcher.choices) == list(BACKENDS)
    for name, place in BACKENDS.items():
        assert place.partition(":")[0] == f"bireme.launch.backends.{name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_backend_is_read_in_one_sitting(path):
    assert path.read_text().count("\n") < 200


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_is_whole(name):
    cls = find_backend(name)
    assert cls.name == name
    assert cls.summary
    parser = argparse.ArgumentParser()
    cls.add_options(parser)
    made = cls.from_options(parser.parse_args([]), {})
    for member in ("plan", "render", "submit", "status", "cancel", "logs"):
        assert callable(getattr(made, member))


def test_others_are_refused():
    with pytest.raises(ConfigError, match="unknown launcher 'lokal'; valid ones are local"):
        find_backend("lokal")
