"""Host lists as people have them: MPI's, Horovod's, MXNet's, and what editors leave in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.errors import ConfigError
from bireme.launch.hosts import Host, is_loopback, parse_hosts, read_hostfile


def test_a_list_on_the_command_line():
    assert parse_hosts("a:2, ann@b.example.org:4,10.0.0.7:1,c") == (
        Host(name="a", slots=2),
        Host(name="b.example.org", slots=4, user="ann"),
        Host(name="10.0.0.7", slots=1),
        Host(name="c"),
    )


def test_addresses_of_version_six():
    assert parse_hosts("[2001:db8::1]:4,fe80::1%eth0,ann@[::1]:2,ann@2001:db8::22") == (
        Host(name="2001:db8::1", slots=4),
        Host(name="fe80::1%eth0"),
        Host(name="::1", slots=2, user="ann"),
        Host(name="2001:db8::22", user="ann"),
    )


def test_both_kinds_of_files():
    text = (
        "\ufeff# our cluster\r\nleda slots=4\r\n\r\n  castor:2  # slow\r\npollux:2222\nann@io:22\n"
    )
    text += "[fe80::2]:8\nhelen slots=2 max_slots=8 port=2200\nplain"
    assert read_hostfile(text) == (
        Host(name="leda", slots=4),
        Host(name="castor", slots=2),
        Host(name="pollux", port=2222),
        Host(name="io", user="ann", port=22),
        Host(name="fe80::2", slots=8),
        Host(name="helen", slots=2, port=2200),
        Host(name="plain"),
    )


def test_who_is_named_again_has_more_slots():
    assert parse_hosts("a:2,b:1,a:3") == (Host(name="a", slots=5), Host(name="b", slots=1))
    assert read_hostfile("a\na\nb\n") == (Host(name="a", slots=2), Host(name="b"))
    assert read_hostfile("ann@a port=9999\na\n")[0].slots == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no host"),
        (" , ", "names no host"),
        ("a:b", "cannot read a:b"),
        ("a:2:3", "cannot read a:2:3"),
        ("-oProxyCommand=x", "is no host name"),
        ("a;reboot:2", "is no host name"),
        ("$(x)", "is no host name"),
        ("-x@a", "is no user name"),
        ("[a]:1", "cannot read"),
        ("a:99999999", "slots of a must be <= 65536"),
        ("u@a:1,v@a:1", "host a is named with two users"),
    ],
)
def test_what_a_list_cannot_hold(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_hosts(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# nothing\n", "hosts.txt names no host"),
        ("a\nb slots\n", "line 2: 'b slots': 'slots' is none of slots=N"),
        ("a slots=-1", "'slots=-1' is none of"),
        ("a cores=3", "'cores=3' is none of"),
        ("a b", "'b' is none of"),
        ("a port=0", "port of a must be >= 1"),
    ],
)
def test_what_a_file_cannot_hold(text, words):
    with pytest.raises(ConfigError, match=words):
        read_hostfile(text, "hosts.txt")


@given(st.text(max_size=30))
def test_whatever_is_written_is_read_or_refused(text):
    for read in (parse_hosts, read_hostfile):
        try:
            hosts = read(text)
        except ConfigError:
            continue
        assert hosts
        assert all(not host.name.startswith("-") and " " not in host.name for host in hosts)


def test_two_thousand_hosts():
    assert len(read_hostfile("\n".join(f"node{i:04} slots=8" for i in range(2000)))) == 2000


def test_names_of_oneself():
    assert all(map(is_loopback, ("localhost", "LOCALHOST.", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback, ("leda", "10.0.0.1", "localhost2", "fe80::1%eth0")))
