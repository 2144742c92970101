"""Addresses: read, written, refused."""

import pytest

from bireme.errors import ConfigError
from bireme.transport.address import Address, parse_address


@pytest.mark.parametrize(
    "text",
    [
        "inproc://server",
        "tcp://10.0.0.1:9000",
        "tcp://[fe80::1]:0",
        "unix:///run/job/socket",
        "unix://@name?machine=0123456789abcdef",
        "shm+unix://@name",
        "unix://",
    ],
)
def test_addresses_read_as_they_are_written(text: str) -> None:
    assert str(parse_address(text)) == text


def test_an_empty_host_is_loopback() -> None:
    assert parse_address("tcp://:80") == Address("tcp", "127.0.0.1", 80)


@pytest.mark.parametrize(
    "text",
    ["", "tcp:/x:1", "udp://x:1", "tcp://x", "tcp://x:", "tcp://x:-1", "tcp://x:65536", "tcp://x:²",
     "tcp://::1:80", "unix://relative", "shm+unix://a", "unix:///a\0b"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text)
