"""Python objects as bytes, for operations whose users send any object: the one use of pickle.

Whoever takes part in a job runs its script already, so nobody gains by sending code. Nothing read
from a file or from a stranger comes here; `docs/decisions` says why pickle is allowed at all.
"""

from typing import Any

import cloudpickle

__all__ = ("from_bytes", "to_bytes")


def to_bytes(obj: object) -> bytes:
    """Return an object as bytes; functions and classes of the script come with their code.

    Raises:
        TypeError: It holds something that cannot be sent, such as an open file.
    """
    data: bytes = cloudpickle.dumps(obj)
    return data


def from_bytes(data: bytes) -> Any:
    """Return the object that `to_bytes` made bytes of, in this job.

    Example:
        >>> from_bytes(to_bytes(lambda x: x + 1))(2)
        3
    """
    return cloudpickle.loads(data)
