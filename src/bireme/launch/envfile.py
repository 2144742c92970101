"""Variables in a file that only its owner reads, for a shell script to take them from.

For clusters that show a job's environment to everybody.
"""

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from bireme.errors import ConfigError

__all__ = ("exports", "handed_over", "kept")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def exports(env: Mapping[str, str]) -> str:
    r"""Return lines of a shell that set and export variables, whatever is in their values.

    Names that no shell can set are left out.

    Example:
        >>> print(exports({"B": "it's\ntwo lines", "A": "1", "not a name": ""}), end="")
        export A=1
        export B='it'"'"'s
        two lines'
    """
    return "".join(
        f"export {name}={shlex.quote(env[name])}\n" for name in sorted(env) if _NAME.fullmatch(name)
    )


@contextlib.contextmanager
def kept(path: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Keep variables in a new file of mode 0600 while the block lasts; the script may remove it.

    Raises:
        ConfigError: The file cannot be made.
    """
    _keep(path, env)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def handed_over(path: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Keep variables in such a file for a script that will remove it; an error in the block does.

    Raises:
        ConfigError: The file cannot be made.
    """
    _keep(path, env)
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _keep(path: Path, env: Mapping[str, str]) -> None:
    """Keep variables in a new file of mode 0600.

    Args:
        path: Must not be there yet.
        env: The variables.

    Raises:
        ConfigError: The file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot keep the job's environment in {path}: {error}") from error
    try:
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(exports(env))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ConfigError(f"cannot keep the job's environment in {path}: {error}") from error
