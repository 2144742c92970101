"""The address of a network interface, for nodes that are told to use one. Called by ``boot``."""

import socket
import struct

from bireme.errors import ConfigError

__all__ = ("address_of_interface",)

_SIOCGIFADDR = 0x8915
_LONGEST_NAME = 15
_REQUEST = struct.Struct("16s24x")


def address_of_interface(name: str) -> str:
    """Return the IPv4 address of a network interface of this machine.

    Args:
        name: Such as ``eth0``.

    Raises:
        ConfigError: There is no such interface, it has no address, or the system cannot tell.

    Example:
        >>> address_of_interface("lo")
        '127.0.0.1'
    """
    advice = "set BIREME_HOST to this machine's address instead"
    known = ", ".join(each for _, each in socket.if_nameindex())
    raw = name.encode()
    if len(raw) > _LONGEST_NAME or name not in known.split(", "):
        raise ConfigError(f"interface (BIREME_INTERFACE) must be one of {known}; got {name!r:.60}")
    try:
        import fcntl
    except ImportError:
        raise ConfigError(f"this system has no addresses by interface; {advice}") from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, _REQUEST.pack(raw))
        except OSError as error:
            raise ConfigError(f"interface {name} has no address ({error}); {advice}") from error
    return socket.inet_ntoa(answer[20:24])
