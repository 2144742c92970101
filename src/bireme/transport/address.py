"""Address strings, and which machine a local one belongs to. Pure.

| Form | Reaches |
| --- | --- |
| ``inproc://name`` | the same process |
| ``unix:///path`` or ``unix://@name`` | the same machine, through a Unix socket |
| ``shm+unix:///path`` or ``shm+unix://@name`` | the same machine, payloads in shared memory |
| ``tcp://host:port``, ``tcp://[::1]:port`` | any machine |

A local address that a node tells to others ends in ``?machine=...``: the token of the machine (and
user and network namespace) where it means something. Called by the transports and by `choose`.
"""

from dataclasses import dataclass

from bireme.errors import ConfigError

__all__ = ("SCHEMES", "Address", "parse_address")

SCHEMES = ("inproc", "shm+unix", "unix", "tcp")
"""From the fastest to the one that reaches furthest."""

_MACHINE = "?machine="


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address.

    Args:
        scheme: One of `SCHEMES`.
        name: The inproc name; the Unix path, or ``@`` and an abstract name; the TCP host.
        port: The TCP port; 0 otherwise.
        machine: The token of the machine, or empty.
    """

    scheme: str
    name: str
    port: int = 0
    machine: str = ""

    def __str__(self) -> str:
        """Return the text that `parse_address` reads."""
        if self.scheme == "tcp":
            host = f"[{self.name}]" if ":" in self.name else self.name
            return f"tcp://{host}:{self.port}"
        machine = _MACHINE + self.machine if self.machine else ""
        return f"{self.scheme}://{self.name}{machine}"


def parse_address(text: str) -> Address:
    """Read an address.

    Raises:
        ConfigError: It has none of the forms above.

    Example:
        >>> parse_address("tcp://[::1]:9000")
        Address(scheme='tcp', name='::1', port=9000, machine='')
        >>> str(parse_address("shm+unix://@bireme-1?machine=5f"))
        'shm+unix://@bireme-1?machine=5f'
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ConfigError(f"unknown address {text!r}; it starts with one of {_forms()}")
    if scheme == "tcp":
        return _parse_tcp(text, rest)
    name, _, machine = rest.partition(_MACHINE)
    if scheme != "inproc" and name and not name.startswith(("/", "@")):
        raise ConfigError(f"{text!r} needs an absolute path, or @ and a name")
    if "\0" in name:
        raise ConfigError(f"{text!r} holds a null character")
    return Address(scheme, name, machine=machine)


def _parse_tcp(text: str, rest: str) -> Address:
    host, separator, port = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"{text!r}: write an IPv6 host in brackets, as tcp://[::1]:9000")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{text!r} needs a port from 0 to 65535, as tcp://127.0.0.1:9000")
    return Address("tcp", host or "127.0.0.1", int(port))


def _forms() -> str:
    return ", ".join(f"{scheme}://" for scheme in SCHEMES)
