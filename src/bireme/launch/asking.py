"""Asks a cluster's command something, and takes its answer."""

import subprocess
from collections.abc import Mapping, Sequence

from bireme.errors import JobError

__all__ = ("ask",)

_LIMIT_S = 60.0


def ask(command: Sequence[str], env: Mapping[str, str]) -> str:
    r"""Return what a command prints; its exit code is of no matter.

    Args:
        command: Its words.
        env: Its environment.

    Raises:
        JobError: It cannot be run, or does not end.

    Example:
        >>> ask(("echo", "yes"), {"PATH": "/usr/bin:/bin"})
        'yes\n'
    """
    try:
        ended = subprocess.run(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"cannot ask {command[0]}: {error}") from error
    return ended.stdout
