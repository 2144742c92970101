"""Asks a cluster's command something, and takes its answer."""

import subprocess
from collections.abc import Mapping, Sequence

from bireme.errors import JobError

__all__ = ("ask",)

_LIMIT_S = 60.0


def ask(command: Sequence[str], env: Mapping[str, str], unless: str = "") -> str:
    r"""Return what a command prints.

    Args:
        command: Its words.
        env: Its environment.
        unless: What it says when it fails because there is no such job, which is an answer, too.

    Raises:
        JobError: It cannot be run, does not end, or fails: then nothing is known.

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
    if ended.returncode and not (unless and unless in ended.stderr.lower()):
        lines = ended.stderr.strip().splitlines() or ["it says nothing"]
        raise JobError(f"{command[0]} fails with exit code {ended.returncode}: {lines[-1]}")
    return ended.stdout
