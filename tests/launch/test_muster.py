import selectors
import sys
import threading
import time

import pytest
from tests.launch.test_called import BEGIN, Listener

from bireme.errors import ConfigError, TransportError
from bireme.launch.dialin import dial
from bireme.launch.hosts import Host
from bireme.launch.muster import (
    CALL_VARIABLES,
    Muster,
    _identity,
    agent_command,
    call,
    split_words,
    with_package,
)
from bireme.launch.plan import HostPlan

WAITS = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
FAILS = (sys.executable, "-S", "-c", "import sys; sys.exit('no way to leda')")


class Field:
    """Two hosts whose agents a command is to start."""

    def __init__(self, command):
        self.told = {}
        self.selector, self.listener = selectors.DefaultSelector(), Listener()
        why = lambda code, lines: f"code {code}: {lines[-1]}"  # noqa: E731
        self.muster = Muster(command, {"PATH": "/usr/bin:/bin"}, "job-1", why, self.told.update)
        self.sites = [
            self.muster.site(
                HostPlan(host=Host(name=name), is_here=False, processes=()),
                BEGIN,
                self.selector,
                self.listener,
            )
            for name in ("leda", "castor")
        ]

    def __enter__(self):
        for site in self.sites:
            site.open()
        return self

    def __exit__(self, *_):
        for site in self.sites:
            site.close()
        assert not self.selector.get_map()
        self.selector.close()

    def until(self, met):
        limit_s = time.monotonic() + 20
        while not met():
            assert time.monotonic() < limit_s
            for key, _ in self.selector.select(0.05):
                key.data()
            for site in self.sites:
                site.step(time.monotonic())

    def calls(self, **identity):
        port = int(self.told["BIREME_CALL_AT"].split()[-1])
        key = self.told["BIREME_CALL_KEY"].encode()

        def work():
            dial([("127.0.0.1", port)], key, "job-1", identity).close()

        thread = threading.Thread(target=work)
        thread.start()
        return thread


def test_agents_find_their_hosts_by_number_or_by_name():
    with Field(WAITS) as field:
        first, second = field.calls(agent=1), field.calls(agent=7, host="leda")
        field.until(lambda: all(site.has_called for site in field.sites))
        first.join(20)
        second.join(20)
        process = field.muster._process
        assert not field.muster.is_gone
    assert process.poll() is not None


def test_an_agent_of_no_host_is_sent_away():
    with Field(WAITS) as field:
        stranger = field.calls(agent=2)
        field.until(lambda: not stranger.is_alive())
        assert not any(site.has_called for site in field.sites)


def test_the_end_of_the_command_is_the_end_of_who_has_not_called():
    with Field(FAILS) as field:
        field.until(lambda: len(field.listener.heard) == 2)
    reason = "code 1: no way to leda"
    assert field.listener.heard == [("lost", site, reason) for site in field.sites]


def test_no_such_command():
    with Field(("no-such-mpirun",)) as field:
        assert "cannot run 'no-such-mpirun'" in field.listener.heard[0][2]


def test_the_key_is_in_no_command_line():
    with Field(WAITS) as field:
        assert field.told["BIREME_CALL_KEY"] not in " ".join(field.muster._command)
        assert sorted(field.told) == sorted(CALL_VARIABLES)


@pytest.mark.parametrize(
    ("env", "identity"),
    [
        ({"OMPI_COMM_WORLD_RANK": "3"}, {"agent": 3}),
        ({"PMI_RANK": "2"}, {"agent": 2}),
        ({"SLURM_PROCID": "1", "SLURMD_NODENAME": "n1"}, {"agent": 1, "host": "n1"}),
        ({"SGE_TASK_ID": "4"}, {"agent": 3}),
        ({"SGE_TASK_ID": "undefined"}, {"agent": 0}),
    ],
)
def test_who_an_agent_is(env, identity):
    assert _identity(env) == identity


def test_an_agent_without_a_launcher():
    with pytest.raises(ConfigError, match="BIREME_CALL_AT"):
        call({})
    told = {"BIREME_CALL_AT": "127.0.0.1 1", "BIREME_CALL_KEY": "k", "BIREME_CALL_FOR": "job"}
    with pytest.raises(TransportError, match="cannot reach the launcher of job"):
        call(told)


def test_words():
    assert agent_command("/opt/python") == ("/opt/python", "-m", "bireme", "agent", "--call")
    with pytest.raises(ConfigError, match="--mpi-args"):
        split_words("it's", "--mpi-args")


def test_the_package_is_found_and_the_users_path_kept():
    path = with_package({"PYTHONPATH": "/mine"})["PYTHONPATH"]
    assert path.endswith("/mine")
    assert with_package({"PYTHONPATH": path})["PYTHONPATH"] == path
