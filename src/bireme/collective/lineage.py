"""Whether a process was forked from the one that made something, told without a system call.

Called by the engine at every submission of a repeated step.
"""

import os

__all__ = ("Lineage",)

# A hook of the interpreter cannot be taken back, so there is one for all, made when first needed.
_generation = [0]
_hooks: list[bool] = []


class Lineage:
    """Remembers the process in which it was made.

    Example:
        >>> Lineage().is_here
        True
    """

    __slots__ = ("_born",)

    def __init__(self) -> None:
        if not _hooks and hasattr(os, "register_at_fork"):
            _hooks.append(True)
            os.register_at_fork(after_in_child=_count)
        self._born = _generation[0]

    @property
    def is_here(self) -> bool:
        """Whether this process is the one, and no child of it."""
        return self._born == _generation[0]


def _count() -> None:
    _generation[0] += 1
