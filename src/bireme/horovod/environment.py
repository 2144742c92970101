"""The one place where the names of Horovod read and change the process's environment.

``hvd.init()`` takes no settings, so it reads them here, each time anew: scripts set variables such
as ``HOROVOD_TIMELINE`` between two calls.
"""

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping

__all__ = ("host_name", "read", "temporarily")


def read() -> dict[str, str]:
    """Return the environment as it is now."""
    return dict(os.environ)


def host_name() -> str:
    """Return what this machine calls itself."""
    return socket.gethostname()


@contextlib.contextmanager
def temporarily(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for the length of a ``with``; ``None`` leaves one as it is."""
    given = {name: text for name, text in values.items() if text is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
