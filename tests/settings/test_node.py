"""What a launcher writes is what a node reads."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.settings import NodeSettings, Security, is_launched
from bireme.settings.variables import variables
from bireme.types import SCHEDULER, Role, server, worker

SECRET = "0123456789abcdef"
TEXT = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12)
BASE = {
    "role": Role.WORKER,
    "num_workers": 2,
    "num_servers": 1,
    "scheduler_host": "127.0.0.1",
    "scheduler_port": 9091,
    "secret": SECRET,
}
DMLC = {
    "DMLC_ROLE": "worker",
    "DMLC_NUM_WORKER": "2",
    "DMLC_NUM_SERVER": "1",
    "DMLC_PS_ROOT_URI": "10.0.0.7",
    "DMLC_PS_ROOT_PORT": "9091",
    "BIREME_SECRET": SECRET,
}


def node(**fields):
    return NodeSettings(**{**BASE, **fields})


@st.composite
def nodes(draw):
    role = draw(st.sampled_from(Role))
    counts = {"num_workers": draw(st.integers(1, 9)), "num_servers": draw(st.integers(1, 9))}
    bound = {Role.SCHEDULER: 1, Role.SERVER: counts["num_servers"]}.get(role, counts["num_workers"])
    local_size = draw(st.integers(1, 8))
    strings = {
        name: draw(st.just("") | TEXT)
        for name in ("job", "host", "bind", "interface", "secret_file", "kvstore", "tls_ca")
    }
    return NodeSettings(
        role=role,
        rank=draw(st.none() | st.integers(0, bound - 1)),
        scheduler_host=draw(TEXT),
        scheduler_port=draw(st.integers(1, 65535)),
        local_rank=draw(st.integers(0, local_size - 1)),
        local_size=local_size,
        listen_fd=draw(st.none() | st.integers(0, 100)),
        secret=draw(TEXT) + SECRET,
        security=draw(st.sampled_from([Security.AUTH, Security.OFF])),
        bandwidth=draw(st.floats(0.001, 1e9)),
        log_level=draw(st.sampled_from(["debug", "error"])),
        **counts,
        **strings,
    )


@given(nodes())
def test_the_environment_carries_everything(settings):
    assert NodeSettings.from_env(settings.to_env()) == settings


def test_every_field_has_its_own_variable():
    names = [variable.name for variable in variables(NodeSettings).values()]
    assert len(names) == len(set(names)) == len(dataclasses.fields(NodeSettings))


def test_an_environment_of_mxnets_launchers_is_read():
    settings = NodeSettings.from_env({**DMLC, "DMLC_TASK_ID": "1", "DMLC_NODE_HOST": "leda"})
    assert settings.node == worker(1)
    assert settings.scheduler_address == "tcp://10.0.0.7:9091"
    assert settings.host == settings.listen_host == "leda"


def test_our_names_come_first():
    settings = NodeSettings.from_env(
        {**DMLC, "BIREME_ROLE": "server", "BIREME_NUM_SERVERS": "3", "BIREME_RANK": "2"}
    )
    assert settings.node == server(2)
    assert settings.num_workers == 2


def test_servers_of_mxnets_launchers_are_numbered_after_the_workers():
    assert NodeSettings.from_env({**DMLC, "DMLC_ROLE": "server", "DMLC_TASK_ID": "2"}).rank is None


def test_everything_that_is_missing_is_named_at_once():
    with pytest.raises(ConfigError) as caught:
        NodeSettings.from_env({"BIREME_ROLE": "worker", "DMLC_NUM_SERVER": "1"})
    text = str(caught.value)
    for name in (
        "BIREME_NUM_WORKERS (or DMLC_NUM_WORKER)",
        "DMLC_PS_ROOT_URI",
        "DMLC_PS_ROOT_PORT",
    ):
        assert name in text
    assert "BIREME_NUM_SERVERS" not in text
    assert "bireme run -n 2 -s 2 python train.py" in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"rank": 2}, "must be < 2, the number of workers; got 2"),
        ({"role": Role.SERVER, "rank": 1}, "must be < 1, the number of servers"),
        ({"local_rank": 1}, r"\(BIREME_LOCAL_RANK\) must be < local_size \(.*, 1\), got 1"),
        ({"scheduler_port": 0}, "scheduler_port must be >= 1 and <= 65535, got 0"),
        ({"scheduler_host": ""}, r"scheduler_host \(BIREME_SCHEDULER_HOST\) must name a host"),
        ({"num_workers": 0}, "num_workers must be >= 1"),
        ({"secret": ""}, "the job has no secret: set BIREME_SECRET"),
        ({"secret": "short"}, "at least 16 characters, got 5"),
        ({"security": Security.TLS, "tls_cert": "c"}, "security=tls needs"),
        ({"bind": "0.0.0.0", "security": Security.OFF}, "listens on one address, not on all"),
        ({"bind": "::", "security": Security.OFF}, "listens on one address, not on all"),
        (
            {"log_level": "loud"},
            r"\(BIREME_LOG\) must be debug, info, warning or error, got 'loud'",
        ),
    ],
)
def test_what_is_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        node(**fields)


def test_no_secret_is_needed_without_security_or_with_a_file():
    assert node(secret="", security=Security.OFF).secret == ""
    assert node(secret="", secret_file="/run/secret").secret_file == "/run/secret"


def test_the_secret_is_not_shown():
    assert SECRET not in repr(node())
    with pytest.raises(ConfigError) as caught:
        node(secret="hush", rank=0)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "127.0.0.1"),
        ({"scheduler_host": "localhost"}, "localhost"),
        ({"scheduler_host": "::1"}, "::1"),
        ({"scheduler_host": "10.0.0.7"}, None),
        ({"scheduler_host": "leda"}, None),
        ({"scheduler_host": "10.0.0.7", "role": Role.SCHEDULER}, "10.0.0.7"),
        ({"scheduler_host": "10.0.0.7", "host": "10.0.0.8"}, "10.0.0.8"),
        ({"host": "10.0.0.8", "bind": "0.0.0.0"}, "0.0.0.0"),
    ],
)
def test_where_a_node_listens(fields, expected):
    assert node(**fields).listen_host == expected


def test_names():
    assert node().node is None
    assert node(role=Role.SCHEDULER).node == SCHEDULER
    assert node(scheduler_host="::1").scheduler_address == "tcp://[::1]:9091"


def test_kubernetes_of_mxnet_binds_everywhere():
    assert NodeSettings.from_env({**DMLC, "DMLC_USE_KUBERNETES": "1"}).bind == "0.0.0.0"
    assert NodeSettings.from_env({**DMLC, "DMLC_USE_KUBERNETES": "0"}).bind == ""


@pytest.mark.parametrize(("verbose", "level"), [("0", "warning"), ("1", "info"), ("2", "debug")])
def test_verbosity_of_ps_lite(verbose, level):
    assert NodeSettings.from_env({**DMLC, "PS_VERBOSE": verbose}).log_level == level


@pytest.mark.parametrize(
    ("mapping", "launched"),
    [
        ({}, False),
        ({"BIREME_ROLE": ""}, False),
        ({"BIREME_ROLE": "worker"}, True),
        ({"DMLC_ROLE": "server"}, True),
        ({"DMLC_NUM_WORKER": "2"}, False),
    ],
)
def test_whether_there_is_a_launcher(mapping, launched):
    assert is_launched(mapping) is launched
