"""The exact commands by which agents are started; jobs over them are in ``tests/integration``."""

import time
from dataclasses import replace

import pytest
from tests.launch.goldens import HOSTS, JOBS, job, same_as_golden

from bireme.errors import ConfigError
from bireme.launch.backends.ssh import SshBackend
from bireme.launch.hosts import Host


@pytest.mark.parametrize("name", JOBS)
def test_the_commands_are_exactly_these(name):
    spec = JOBS[name]
    hosts = (*HOSTS, Host(name="pollux", slots=1))[: spec.num_workers]
    backend = SshBackend({}, python="/opt/my env/bin/python", port=2200, identity_file="/k/id")
    text = backend.render(backend.plan(replace(spec, hosts=hosts)))
    assert same_as_golden(f"ssh-{name}", text)
    assert "0123456789abcdef" not in text
    assert "not to be shown" not in text


def test_no_hosts():
    with pytest.raises(ConfigError, match="ssh to which hosts"):
        SshBackend({}).plan(job())


def test_another_program_gets_the_host_and_the_command_only():
    backend = SshBackend({}, program="/etc/mpi/kubexec.sh", args=("-v",), python="python3")
    words = backend.command(Host(name="pod-1"), job())
    assert words[:3] == ("/etc/mpi/kubexec.sh", "-v", "pod-1")
    assert words[3].startswith("exec python3 -c ")


def test_two_thousand_hosts_are_planned_and_shown_within_a_second():
    hosts = tuple(Host(name=f"node{index:04}", slots=1) for index in range(2000))
    inherited = {f"VARIABLE_{index}": "x" * 50 for index in range(100)}
    spec = job(num_workers=2000, num_servers=0, hosts=hosts, server_env={}, inherited=inherited)
    backend = SshBackend({})
    begin_s = time.process_time()
    text = backend.render(backend.plan(spec))
    assert time.process_time() - begin_s < 1.0
    assert text.count("\nssh ") == 2000
