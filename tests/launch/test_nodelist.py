import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.launch.nodelist import expand_nodelist, pe_layout, slurm_layout, tasks_per_node

KNOWN = {
    "vm": ("vm",),
    "node[1-3,7]": ("node1", "node2", "node3", "node7"),
    "n[01-03]": ("n01", "n02", "n03"),
    "n[098-101]": ("n098", "n099", "n100", "n101"),
    "n[9-11]": ("n9", "n10", "n11"),
    "a,b[1-2],c": ("a", "b1", "b2", "c"),
    "r[1-2]n[3,5]": ("r1n3", "r1n5", "r2n3", "r2n5"),
    "b,a": ("b", "a"),
}


@pytest.mark.parametrize("text", KNOWN)
def test_lists(text):
    assert expand_nodelist(text) == KNOWN[text]


def test_names_go_on_behind_brackets():
    hosts = ("gpu1.example.org", "gpu2.example.org")
    assert expand_nodelist("gpu[1-2].example.org") == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "a,,b", "n[", "n]", "n[]", "n[1-]", "n[a-b]", "n[3-1]", "n[1", "n[1-2", "a b"),
        *("n[[1]]", "n[1-99999999]", "r[1-999]n[1-999]", "n[\u0661]"),
    ],
)
def test_what_is_no_list_is_refused(text):
    with pytest.raises(ConfigError):
        expand_nodelist(text)


@given(st.text(alphabet="n1-3,[]x. ", max_size=20))
def test_any_text_is_a_list_or_an_error(text):
    try:
        assert all(expand_nodelist(text))
    except ConfigError:
        pass


def test_counts():
    assert tasks_per_node("2(x3),1") == (2, 2, 2, 1)
    assert tasks_per_node("4") == (4,)
    for text in ("", "2(x", "x", "2(x99999999)", "-1"):
        with pytest.raises(ConfigError, match="counts"):
            tasks_per_node(text)


def test_an_allocation():
    env = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "2(x2),1"}
    assert slurm_layout(env) == (("n1", 2), ("n2", 2), ("n3", 1))
    assert slurm_layout({"SLURM_NODELIST": "n[1-2]"}) == (("n1", 1), ("n2", 1))


def test_no_allocation():
    with pytest.raises(ConfigError, match="SLURM_JOB_NODELIST is not set"):
        slurm_layout({})
    with pytest.raises(ConfigError, match="3 hosts and SLURM_TASKS_PER_NODE=1,1 counts for 2"):
        slurm_layout({"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "1,1"})


def test_hosts_of_grid_engine():
    text = "node-a 2 all.q@node-a UNDEFINED\r\n\nnode-b 1 all.q@node-b 0,1\n"
    text += "node-a 3 x.q@node-a <NULL>\n"
    assert pe_layout(text) == (("node-a", 5), ("node-b", 1))
    for wrong in ("", "\n\n", "node-a", "node-a two all.q"):
        with pytest.raises(ConfigError, match="PE_HOSTFILE"):
            pe_layout(wrong)
