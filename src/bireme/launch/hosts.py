"""Hosts and their slots, as ``-H`` and host files name them. Pure.

Both families of host files are read: MPI's and Horovod's ``host slots=4``, and MXNet's plain list
of names. Called by the command line.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bireme.errors import ConfigError

__all__ = ("Host", "is_loopback", "parse_hosts", "read_hostfile")

_SSH_PORT = 22
_LEAST_HIGH_PORT = 1024
_MOST_SLOTS = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._$-]*")
_ENTRY = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.%\w-]+)\]|(?P<name>[^\s\[\]:]+)"
    r"|(?P<bare>[0-9A-Fa-f:.]+(?:%\w+)?))(?::(?P<number>\d+))?"
)
_FORMS = "write host, host:slots, user@host:slots or [IPv6 address]:slots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine of a job.

    Args:
        name: Name or address, as the user wrote it, without brackets.
        slots: Workers that fit on it; ``None`` where nobody said.
        user: Whom to log in as; empty for whoever the remote shell takes.
        port: The remote shell's port; ``None`` for its own default.

    Raises:
        ConfigError: ``name`` or ``user`` cannot be one, or a number is out of range.

    Example:
        >>> Host(name="leda", slots=4), str(Host(name="fe80::1", user="ann", port=2222))
        (Host(name='leda', slots=4, user='', port=None), 'ann@[fe80::1]')
    """

    name: str
    slots: int | None = None
    user: str = ""
    port: int | None = None

    def __post_init__(self) -> None:
        # A name never starts with a dash, so that no program takes it for an option.
        if not (_NAME.fullmatch(self.name) or _is_address(self.name)):
            raise ConfigError(f"{self.name!r} is no host name or address")
        if self.user and not _USER.fullmatch(self.user):
            raise ConfigError(f"{self.user!r} is no user name")
        if self.slots is not None and not 0 <= self.slots <= _MOST_SLOTS:
            raise ConfigError(f"slots of {self.name} must be <= {_MOST_SLOTS}, got {self.slots}")
        if self.port is not None and not 1 <= self.port <= 65535:
            raise ConfigError(f"port of {self.name} must be >= 1 and <= 65535, got {self.port}")

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{self.user}@{name}" if self.user else name


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of ``-H``: ``host:slots`` separated by commas; a number is always slots.

    Raises:
        ConfigError: An entry cannot be read, or a host is named in two ways.

    Example:
        >>> [(host.name, host.slots) for host in parse_hosts("a:2,[::1]:4,b")]
        [('a', 2), ('::1', 4), ('b', None)]
    """
    found = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, number = _parse(entry, entry)
        found.append(replace(host, slots=number))
    if not found:
        raise ConfigError(f"-H names no host in {text!r}; {_FORMS}, separated by commas")
    return _merged(found)


def read_hostfile(text: str, name: str = "the host file") -> tuple[Host, ...]:
    r"""Return the hosts of a host file.

    A line is ``host``, ``host slots=4`` or ``host:number``, each also with ``user@`` before and
    ``port=2222`` behind. The number is the remote shell's port where it is 22 or at least 1024, as
    MXNet's launcher has it, and slots where it is less, as MPICH and Horovod have it. ``#`` starts
    a comment. Lines that repeat a host add to its slots.

    Args:
        text: What the file holds.
        name: Its name, for messages.

    Raises:
        ConfigError: A line cannot be read; names it.

    Example:
        >>> [(h.name, h.slots, h.port) for h in read_hostfile("a slots=2 # fast\r\nb:2222\n")]
        [('a', 2, None), ('b', None, 2222)]
    """
    found = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            found.append(_parse_line(words, f"{name}, line {number}: {line.strip()!r}"))
    if not found:
        raise ConfigError(f"{name} names no host")
    return _merged(found)


def is_loopback(name: str) -> bool:
    """Return whether ``name`` means the machine that reads it, whichever that is."""
    if name.lower().rstrip(".") == "localhost":
        return True
    return _is_address(name) and ipaddress.ip_address(name.partition("%")[0]).is_loopback


def _parse(entry: str, where: str) -> tuple[Host, int | None]:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ConfigError(f"cannot read {where}; {_FORMS}")
    name = match["six"] or match["name"] or match["bare"]
    number = None if match["number"] is None else int(match["number"])
    if match["bare"]:
        # Without brackets the last part is the address's own.
        name, number = entry.rpartition("@")[2], None
    if not match["name"] and not _is_address(name):
        raise ConfigError(f"cannot read {where}; {_FORMS}")
    return Host(name=name, user=match["user"] or ""), number


def _parse_line(words: Sequence[str], where: str) -> Host:
    host, number = _parse(words[0], where)
    if number is not None:
        is_port = number == _SSH_PORT or number >= _LEAST_HIGH_PORT
        host = replace(host, port=number) if is_port else replace(host, slots=number)
    for word in words[1:]:
        key, equals, value = word.partition("=")
        key = key.lower().replace("-", "_")
        if not equals or not value.isdecimal() or key not in ("slots", "max_slots", "port"):
            raise ConfigError(f"cannot read {where}: {word!r} is none of slots=N, port=N")
        if key == "slots":
            host = replace(host, slots=int(value))
        elif key == "port":
            host = replace(host, port=int(value))
    return host


def _merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Add up the slots of hosts that are named more than once, in the order of first mention."""
    found: dict[str, Host] = {}
    for host in hosts:
        known = found.get(host.name)
        if known is None:
            found[host.name] = host
            continue
        if (known.user, known.port) != (host.user or known.user, host.port or known.port):
            raise ConfigError(
                f"host {host.name} is named with two users or ports; name it in one way"
            )
        slots = (1 if known.slots is None else known.slots) + (
            1 if host.slots is None else host.slots
        )
        found[host.name] = replace(known, slots=slots)
    return tuple(found.values())


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
