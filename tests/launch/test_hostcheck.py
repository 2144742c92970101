import argparse
import os
from pathlib import Path

import pytest

from bireme.errors import ConfigError
from bireme.launch.hostcheck import _marks, add_host_options, examine_hosts

FAKES = str(Path(__file__).parent)
"""Where a program called ssh stands for the real one."""


def examined(*words):
    parser = argparse.ArgumentParser()
    add_host_options(parser)
    lines = []
    env = {**os.environ, "PATH": f"{FAKES}:{os.environ['PATH']}"}
    code = examine_hosts(parser.parse_args(list(words)), env, lines.append, here="here")
    return code, lines


def test_this_machine_is_well():
    code, lines = examined("--hosts", "localhost")
    assert code == 0, lines
    assert lines[1].startswith("localhost")
    assert len(lines) == 2


def test_a_host_that_is_not_there_has_its_cross(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost\nno-such-host\n")
    program = tmp_path / "ssh"
    program.write_text(
        "#!/bin/sh\necho 'ssh: Could not resolve hostname no-such-host: unknown' >&2\nexit 255\n"
    )
    program.chmod(0o755)
    code, lines = examined("--hostfile", str(hosts), "--ssh-program", str(program))
    assert code == 1
    assert lines[3] == "what to do:"
    assert lines[4].startswith("  no-such-host: no such host; check its name, or use its address")


def test_hosts_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the host file"):
        examined("--hostfile", f"{tmp_path}/no")
    with pytest.raises(ConfigError, match="give one"):
        examined("--hosts", "a", "--hostfile", "b")


def test_marks():
    assert _marks("utf-8") == ("\u2713", "\u2717")
    assert _marks("ascii") == _marks(None) == _marks("no-such") == ("ok", "NO")
