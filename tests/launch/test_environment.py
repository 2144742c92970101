"""What goes on to a process, and what it is told of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.launch.environment import (
    Meeting,
    forwarded,
    identity_variables,
    meeting_variables,
    told,
)
from bireme.types import SCHEDULER, server, worker

MEETING = Meeting(
    scheduler_host="10.0.0.7",
    scheduler_port=9091,
    store_host="10.0.0.8",
    store_port=29500,
    engine_port=29501,
)


def test_everything_goes_on_but_who_the_launcher_is():
    mine = {"PATH": "/bin", "PYTHONPATH": "src", "VIRTUAL_ENV": "/v", "LD_LIBRARY_PATH": "/l"}
    mine |= {
        "AWS_ACCESS_KEY_ID": "k",
        "A": "two words",
        "B": "it's",
        "C": "two\nlines",
        "D": "\u00e4",
    }
    launchers = {"RANK": "3", "BIREME_ROLE": "worker", "DMLC_ROLE": "server", "HOROVOD_RANK": "1"}
    launchers |= {"OMPI_COMM_WORLD_RANK": "0", "PMI_RANK": "0", "SLURM_PROCID": "0"}
    launchers |= {"BASH_FUNC_module%%": "() { :; }"}
    for elsewhere in (True, False):
        assert forwarded({**mine, **launchers}, elsewhere=elsewhere) == mine


def test_what_means_something_on_one_machine_only():
    here = {"SSH_AUTH_SOCK": "/tmp/s", "TMPDIR": "/scratch", "DISPLAY": ":0", "HOSTNAME": "leda"}
    here |= {"XDG_RUNTIME_DIR": "/run/user/0", "CUDA_VISIBLE_DEVICES": "1", "PWD": "/", "_": "x"}
    assert forwarded(here, elsewhere=False) == here
    assert forwarded(here, elsewhere=True) == {}


def test_identity_is_known_in_every_spelling():
    known = identity_variables()
    assert {"BIREME_ROLE", "DMLC_ROLE", "BIREME_SECRET", "DMLC_NODE_HOST", "MASTER_PORT"} <= known
    assert "BIREME_SLICE_BYTES" not in known


def test_who_is_told_what():
    assert meeting_variables(server(0), MEETING) == meeting_variables(SCHEDULER, MEETING)
    assert meeting_variables(server(0), MEETING) == {
        "BIREME_SCHEDULER_HOST": "10.0.0.7",
        "BIREME_SCHEDULER_PORT": "9091",
        "DMLC_PS_ROOT_URI": "10.0.0.7",
        "DMLC_PS_ROOT_PORT": "9091",
    }
    alone = Meeting(store_host="10.0.0.8", store_port=29500, engine_port=29501)
    assert meeting_variables(worker(0), alone) == {
        "MASTER_ADDR": "10.0.0.8",
        "MASTER_PORT": "29500",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.8",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "29501",
    }


def test_the_user_comes_before_the_launcher():
    env = told({"OMP_NUM_THREADS": "5", "A": "1"}, {"A": "2"}, worker(0), MEETING, threads=3)
    assert (env["A"], env["OMP_NUM_THREADS"], env["NUMBA_NUM_THREADS"]) == ("2", "5", "3")
    assert env["PYTHONUNBUFFERED"] == "1"
    assert "BIREME_LISTEN_FD" not in env


def test_the_scheduler_is_told_of_its_socket():
    assert told({}, {}, SCHEDULER, MEETING, threads=1, listen_fd=5)["BIREME_LISTEN_FD"] == "5"


@given(st.dictionaries(st.text(min_size=1), st.text()), st.booleans())
def test_nothing_is_changed_on_the_way(env, elsewhere):
    found = forwarded(env, elsewhere=elsewhere)
    assert found.items() <= env.items()
    assert not found.keys() & identity_variables()


@pytest.mark.parametrize("node", [SCHEDULER, server(1), worker(2)])
def test_nobody_is_told_of_what_is_not_there(node):
    assert meeting_variables(node, Meeting()) == {}
