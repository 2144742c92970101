"""Closes a transport's descriptors in every child process that is forked from this one.

A child such as a ``DataLoader``'s worker inherits copies of its parent's sockets. As long as it
lives, they stay open, and peers would not notice the parent's death before its silence is too long.
Memory files are left alone: nobody waits for their end, and a mapping outlives its descriptor.
Called by `SocketTransport`.
"""

import os
import weakref
from collections.abc import Iterator
from typing import Protocol

__all__ = ("Owner", "close_in_children")


class Owner(Protocol):
    """Whatever has open descriptors."""

    def descriptors(self) -> Iterator[int]:
        """Yield those that are open now; negative ones are passed over. Takes no locks."""


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
# A hook of the interpreter cannot be taken back, so there is one for all, made when first needed.
_hooks: list[bool] = []


def close_in_children(owner: Owner) -> None:
    """Close what ``owner`` has open in processes that are forked from now on; not in this one."""
    _owners.add(owner)
    if not _hooks and hasattr(os, "register_at_fork"):
        _hooks.append(True)
        os.register_at_fork(after_in_child=_close_all)


def _close_all() -> None:
    """Put the null device in the place of each descriptor.

    The child still has the parent's objects, and would close the same numbers again one day, when
    they may be another file's.
    """
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for owner in list(_owners):
            for descriptor in owner.descriptors():
                if descriptor >= 0:
                    os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)
