"""The interface says what a launcher promises; the real ones are checked by their own tests."""

from bireme.launch.base import Launcher
from bireme.launch.registry import LAUNCHERS, find_launcher


def test_the_promises_are_written_down():
    assert "Guarantees:" in Launcher.__doc__


def test_launchers_have_every_member():
    members = {name for name in vars(Launcher) if not name.startswith("_")}
    assert {"add_options", "from_options", "run"} <= members
    for name in LAUNCHERS:
        assert all(hasattr(find_launcher(name), member) for member in members)
