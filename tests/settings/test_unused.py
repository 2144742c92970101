"""A variable that does nothing is named; one that does something is not."""

import pytest

from bireme.settings import JobSettings, NodeSettings, Security, notices
from bireme.settings.dmlc import SPELLINGS
from bireme.settings.unused import UNUSED
from bireme.types import Role


def test_what_a_launcher_writes_is_not_remarked_upon():
    node = NodeSettings(
        role=Role.WORKER,
        rank=0,
        num_workers=1,
        num_servers=1,
        scheduler_host="h",
        scheduler_port=1,
        security=Security.OFF,
        host="x",
    )
    assert notices({**node.to_env(), **JobSettings().to_env()}) == []
    assert notices(dict.fromkeys(SPELLINGS.values(), "1")) == []


@pytest.mark.parametrize("name", UNUSED)
def test_variables_without_effect_are_named(name):
    (line,) = notices({name: "7", "HOME": "/root", "PS1": "$ ", "PATH": "/bin"})
    assert line.startswith(f"{name}=7 has no effect: ")
    assert notices({name: ""}) == notices({name: "0"}) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BIREME_BARIER_TIMEOUT", "did you mean BIREME_BARRIER_TIMEOUT?"),
        ("DMLC_ROL", "did you mean DMLC_ROLE?"),
        ("PS_ZZZZ", "no such variable"),
    ],
)
def test_misspelt_ones_are_named(name, words):
    (line,) = notices({name: "1"})
    assert words in line


@pytest.mark.parametrize(("van", "lines"), [("zmq", 0), ("p3", 0), ("ibverbs", 1), ("UCX", 1)])
def test_vans(van, lines):
    assert len(notices({"DMLC_PS_VAN_TYPE": van})) == lines
