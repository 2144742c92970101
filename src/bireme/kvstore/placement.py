"""Which device holds which key: the same load for each, decided the same way every time.

Pure: the ``device`` store asks when it first sees the devices of a push.
"""

from collections.abc import Mapping, Sequence

from bireme.kvstore.base import Key

__all__ = ("balance",)


def balance(sizes_bytes: Mapping[Key, int], load_bytes: Sequence[int]) -> dict[Key, int]:
    """Return the position of a device for each key.

    Keys go from the largest to the smallest to the device with the least load so far; equal
    sizes keep their order, and of equal loads the first device wins.

    Args:
        sizes_bytes: Size of each key's value.
        load_bytes: What each device holds already, at least one entry.

    Example:
        >>> balance({"a": 10, "b": 40, "c": 30}, [0, 0])
        {'b': 0, 'c': 1, 'a': 1}

    Source:
        MXNet 1.9 ``src/kvstore/comm.h``, ``CommDevice::InitMergeBuffer``.
    """
    loads = list(load_bytes)
    homes: dict[Key, int] = {}
    for key in sorted(sizes_bytes, key=lambda each: -sizes_bytes[each]):
        position = loads.index(min(loads))
        loads[position] += sizes_bytes[key]
        homes[key] = position
    return homes
