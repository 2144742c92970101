"""Every launcher is found by its name and has what a launcher needs."""

import argparse

import pytest

from bireme.errors import ConfigError
from bireme.launch.registry import LAUNCHERS, find_launcher


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_is_whole(name):
    cls = find_launcher(name)
    assert cls.name == name
    assert cls.summary
    parser = argparse.ArgumentParser()
    cls.add_options(parser)
    assert callable(cls.from_options(parser.parse_args([])).run)


def test_others_are_refused():
    with pytest.raises(ConfigError, match="unknown launcher 'lokal'; valid ones are local"):
        find_launcher("lokal")
