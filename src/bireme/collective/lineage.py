"""Whether a process was forked from the one that made something, told without a system call.

Looked at by the engine at every submission of a repeated step.
"""

import os
from weakref import WeakSet

__all__ = ("Lineage",)

# A hook of the interpreter cannot be taken back, so there is one for all, made when first needed.
_born_here: "WeakSet[Lineage]" = WeakSet()
_hooks: list[bool] = []


class Lineage:
    """Remembers the process in which it was made.

    Attributes:
        is_here: Whether this process is the one, and no child of it.

    Example:
        >>> Lineage().is_here
        True
    """

    __slots__ = ("__weakref__", "is_here")

    def __init__(self) -> None:
        if not _hooks and hasattr(os, "register_at_fork"):
            _hooks.append(True)
            os.register_at_fork(after_in_child=_leave)
        self.is_here = True
        _born_here.add(self)


def _leave() -> None:
    for each in _born_here:
        each.is_here = False
    _born_here.clear()
