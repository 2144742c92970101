"""The secret of a job: made at random, and kept where only its owner can read it."""

import os
import secrets
from pathlib import Path

from bireme.errors import ConfigError

__all__ = ("keep_secret", "new_secret")

_SECRET_BYTES = 32


def new_secret() -> str:
    """Return a secret that no other job has: 64 hexadecimal digits.

    Example:
        >>> len(new_secret())
        64
    """
    return secrets.token_hex(_SECRET_BYTES)


def keep_secret(path: Path) -> Path:
    """Return the absolute path of a file that holds a secret; it is made when there is none.

    Args:
        path: The file. A new one is readable by its owner only.

    Raises:
        ConfigError: The file cannot be made, or others can read it.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise ConfigError(
                f"others can read the secret in {path} (mode {mode:03o}); try: chmod 600 {path}"
            ) from None
        return path.absolute()
    except OSError as error:
        raise ConfigError(f"cannot keep the job's secret in {path}: {error}") from error
    with os.fdopen(fd, "w") as file:
        file.write(new_secret() + "\n")
    return path.absolute()
