"""Ports that a job's processes will listen on, kept from others until they do.

Called by whoever starts processes, on the machine that they run on.
"""

import contextlib
import socket
from collections.abc import Iterator

from bireme.errors import ConfigError

__all__ = ("listening", "reserved")

_BACKLOG = 1024


@contextlib.contextmanager
def reserved() -> Iterator[int]:
    """Yield a port that only a process which names it can listen on, while the block lasts.

    The port is bound and not listened on, with the address reusable: the kernel gives it to nobody
    who asks for any port, neither to listen nor to connect from, and lets whoever asks for this
    one have it, once. ``torch.distributed`` and Python's servers ask so.

    Raises:
        ConfigError: No port is free.
    """
    try:
        holder = _bound()
    except OSError as error:
        raise ConfigError(f"cannot reserve a port: {error}") from error
    with holder:
        yield int(holder.getsockname()[1])


def listening(host: str) -> socket.socket:
    """Return a socket that listens on any port of one of this machine's addresses.

    A process that inherits it needs no port to be free, and whoever is early waits in its queue.

    Args:
        host: Name or address, of any family.

    Raises:
        ConfigError: The address is not this machine's.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}: {error}") from error


def _bound() -> socket.socket:
    has_both = socket.has_dualstack_ipv6()
    holder = socket.socket(socket.AF_INET6 if has_both else socket.AF_INET)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if has_both:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.bind(("", 0))
    except BaseException:
        holder.close()
        raise
    return holder
