"""How each family of ``mpirun`` is told to start one agent on each host. Pure but for one question.

Called by the backend for MPI.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from bireme.errors import ConfigError
from bireme.launch.muster import CALL_VARIABLES

__all__ = ("FLAVOURS", "asked_flavour", "flavour_of", "mpi_words")

FLAVOURS = ("openmpi", "mpich", "intel")
"""The families whose command lines are known."""

_SIGNS = (
    (r"open.?mpi|openrte|prrte|open rte", "openmpi"),
    (r"intel\(r\) mpi", "intel"),
    (r"mpich|hydra|mvapich", "mpich"),
)
_LIMIT_S = 20.0
_LISTED = ",".join((*CALL_VARIABLES, "PATH", "LD_LIBRARY_PATH"))


def flavour_of(version: str) -> str:
    """Return whose ``mpirun`` it is, by what it says of its version.

    Raises:
        ConfigError: Nobody's that is known.

    Example:
        >>> flavour_of("mpirun (Open MPI) 4.1.4")
        'openmpi'
    """
    for sign, flavour in _SIGNS:
        if re.search(sign, version, re.IGNORECASE):
            return flavour
    said = version.strip().partition("\n")[0]
    raise ConfigError(
        f"cannot tell whose mpirun this is ({said!r}); say --mpi-flavour {'|'.join(FLAVOURS)}"
    )


def asked_flavour(program: str, env: Mapping[str, str]) -> str:
    """Return whose ``mpirun`` a program says that it is; Open MPI's where there is none to ask.

    Raises:
        ConfigError: It gives no answer, or none that is known.
    """
    if shutil.which(program, path=env.get("PATH")) is None:
        # A job that is only shown needs none; one that is started will say that there is none.
        return FLAVOURS[0]
    try:
        asked = subprocess.run(
            [program, "--version"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{program!r} does not say its version: {error}") from error
    return flavour_of(asked.stdout + asked.stderr)


def mpi_words(flavour: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the words between ``mpirun`` and the program, one process on each host, in order.

    Args:
        flavour: One of ``FLAVOURS``.
        names: The hosts.

    Example:
        >>> " ".join(mpi_words("mpich", ["leda", "castor"]))[:31]
        '-n 2 -hosts leda:1,castor:1 -ge'
    """
    return tuple(_WORDS[flavour](names))


def _open_mpi(names: Sequence[str]) -> Iterator[str]:
    yield from ("-np", str(len(names)), "--host", ",".join(f"{name}:1" for name in names))
    # The processes of an agent would share the one core that it is bound to.
    yield from ("--bind-to", "none")
    for variable in CALL_VARIABLES:
        yield from ("-x", variable)


def _mpich(names: Sequence[str]) -> Iterator[str]:
    yield from ("-n", str(len(names)), "-hosts", ",".join(f"{name}:1" for name in names))
    yield from ("-genvlist", _LISTED)


def _intel(names: Sequence[str]) -> Iterator[str]:
    yield from ("-n", str(len(names)), "-ppn", "1", "-hosts", ",".join(names))
    yield from ("-genv", "I_MPI_PIN", "0", "-genvlist", _LISTED)


_WORDS = {"openmpi": _open_mpi, "mpich": _mpich, "intel": _intel}
