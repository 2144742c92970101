"""One turn of a loop over descriptors that call functions. Used by launchers and agents."""

import selectors

__all__ = ("turn",)


def turn(selector: selectors.BaseSelector, timeout_s: float) -> None:
    """Wait until something is ready or the time is up, and call what was registered for it.

    Args:
        selector: The data of each of its keys is a function without arguments, or ``None``. A
            function may take out any key, also one that is ready in the same turn.
        timeout_s: How long to wait at most.
    """
    for key, _ in selector.select(timeout_s):
        known = selector.get_map().get(key.fileobj)
        if known is not None and known.data is key.data and key.data is not None:
            key.data()
