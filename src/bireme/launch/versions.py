"""What a host has, beside what the launcher's machine has. Pure, but for asking what is installed.

Every agent says so when it is ready. Another version of this package is refused where it is heard
(:mod:`bireme.launch.conversation`); other differences may be meant, such as a build without CUDA
on a host without GPUs, and are told before the job starts.
"""

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping

from bireme.version import __version__

__all__ = ("differences", "versions")

_PACKAGES = ("torch", "numpy", "msgspec", "numba", "safetensors")
_MOST_SHOWN = 4


def versions() -> dict[str, str]:
    """Return the versions of this package and of those it stands on, as far as they are here.

    Example:
        >>> versions()["bireme"] == __version__
        True
    """
    found = {"bireme": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def differences(
    hosts: Mapping[str, tuple[str, Mapping[str, str]]],
    python: str = platform.python_version(),
    here: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Yield a line for each way in which hosts differ from this machine, and what to do.

    Args:
        hosts: For each, its Python's version and those of its packages; none if it has not said.
        python: This machine's Python.
        here: Its packages; by default as they are.

    Example:
        >>> list(differences({"leda": ("3.12.1", {"torch": "2.1.0+cpu"})}, "3.11.2",
        ...     {"torch": "2.1.0+cu121"}))
        ['leda has Python 3.12.1, and 3.11.2 is here; name the same by --ssh-python']
    """
    here = versions() if here is None else here
    groups: dict[tuple[str, str], list[str]] = {}
    for host, (theirs, packages) in hosts.items():
        if _minor(theirs) != _minor(python):
            groups.setdefault(("Python", theirs), []).append(host)
        for name in sorted(here) if packages else ():
            if _public(packages.get(name, "")) != _public(here[name]):
                groups.setdefault((name, packages.get(name, "")), []).append(host)
    for (name, theirs), names in groups.items():
        shown = ", ".join(names[:_MOST_SHOWN])
        more = len(names) - _MOST_SHOWN
        who = f"{shown} and {more} more" if more > 0 else shown
        has = "has" if len(names) == 1 else "have"
        what = f"{name} {theirs}" if theirs else f"no {name}"
        if name == "Python":
            yield f"{who} {has} {what}, and {python} is here; name the same by --ssh-python"
        else:
            yield f"{who} {has} {what}, and {here[name]} is here; install the same there"


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _public(version: str) -> str:
    """Return a version without what says how it was built."""
    return version.partition("+")[0]
