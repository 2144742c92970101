"""How a job's processes are told that ``import horovod`` means Bireme. Pure; launchers call it."""

from collections.abc import Mapping

__all__ = ("with_alias",)


def with_alias(env: Mapping[str, str], folder: str, *, separator: str = ":") -> dict[str, str]:
    """Return ``env`` with ``folder`` first on Python's path, once.

    Args:
        env: The environment of processes to start.
        folder: Where the ``sitecustomize.py`` lies that installs the alias.
        separator: ``os.pathsep`` of the machine.

    Example:
        >>> with_alias({"PYTHONPATH": "/my/code"}, "/b/bootstrap")["PYTHONPATH"]
        '/b/bootstrap:/my/code'
    """
    others = [each for each in env.get("PYTHONPATH", "").split(separator) if each != folder]
    return {**env, "PYTHONPATH": separator.join([folder, *filter(None, others)])}
