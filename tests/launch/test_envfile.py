import stat
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.launch.envfile import exports, handed_over, kept

VALUES = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


@given(st.dictionaries(st.sampled_from(["A", "B_2", "_c"]), VALUES))
def test_a_shell_reads_every_value(env):
    script = exports(env) + "env -0\n"
    told = subprocess.run(["/bin/sh", "-c", script], env={}, capture_output=True, check=True)
    found = dict(item.split("=", 1) for item in told.stdout.decode().split("\0") if "=" in item)
    assert {name: found[name] for name in env} == env


def test_names_that_are_none_are_left_out():
    assert exports({"BASH_FUNC_x%%": "() { :; }", "A": "1"}) == "export A=1\n"


def test_only_the_owner_reads_it_and_it_goes(tmp_path):
    path = tmp_path / "new" / ".env"
    with kept(path, {"A": "1"}):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text() == "export A=1\n"
    assert not path.exists()
    with kept(path, {}):
        path.unlink()


def test_it_takes_nobody_elses_file(tmp_path):
    path = tmp_path / ".env"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="cannot keep the job's environment"), kept(path, {}):
        pass
    assert path.read_text() == "mine"


def test_what_is_handed_over_stays_for_the_script(tmp_path):
    path = tmp_path / ".env"
    with handed_over(path, {"A": "1"}):
        pass
    assert path.read_text() == "export A=1\n"
    path.unlink()
    with pytest.raises(KeyboardInterrupt), handed_over(path, {}):
        raise KeyboardInterrupt
    assert not path.exists()
