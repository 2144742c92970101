"""How an agent is started by a remote shell, and what a shell's refusals mean. Pure but for paths.

The remote shell may be sh, bash, zsh or csh: it is given one fixed line without anything of the
job. Everything else goes by standard input.
"""

import shlex
import sys
import sysconfig
from pathlib import Path

import bireme

__all__ = ("agent_line", "explain", "preface")

_BOOT = (
    'import sys;p=open(0,"rb",0,closefd=False).readline().decode().strip();'
    "p and sys.path.insert(0,p);from bireme.cli import main;"
    'sys.exit(main(["agent"]))'
)
"""Reads one line, the folder of the package where it is not installed, then becomes the agent.
Without quotes, marks and newlines that some shell takes for its own."""

_SYMPTOMS = (
    ("could not resolve", "no such host; check its name, or use its address"),
    ("name or service not known", "no such host; check its name, or use its address"),
    ("connection refused", "nobody listens there; is its ssh server up, on this port?"),
    ("no route to host", "it cannot be reached; is it up, and on this network?"),
    ("timed out", "it does not answer; is it up, and does a firewall let ssh through?"),
    ("permission denied", "log in without a password first: ssh-copy-id {host}"),
    ("host key verification failed", "its key is not the known one: ssh-keygen -R {host}"),
    ("no module named 'bireme'", "install bireme there for {python}, or name --ssh-python"),
    ("no module named", "bireme lacks something there; install it for {python}"),
    ("no such file", "there is no {python} there; name its Python by --ssh-python"),
    ("not found", "there is no {python} there; name its Python by --ssh-python"),
)


def agent_line(python: str = "") -> str:
    """Return what the remote shell runs.

    Args:
        python: The interpreter there; empty for the path of this one.

    Example:
        >>> agent_line("/opt/my env/bin/python").split(" -c ")[0]
        "exec '/opt/my env/bin/python'"
    """
    return f"exec {shlex.quote(python or sys.executable)} -c {shlex.quote(_BOOT)}"


def preface() -> bytes:
    """Return what the agent reads first: where this package is, if it is not installed."""
    folder = str(Path(bireme.__file__).parent.parent)
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return ("" if folder in installed else folder).encode() + b"\n"


def explain(host: str, python: str, code: int | None, lines: list[str]) -> str:
    """Return why a remote shell started no agent, and what to do.

    Args:
        host: Where.
        python: The interpreter that it was to run.
        code: The shell's exit code.
        lines: What it said last.

    Example:
        >>> explain("leda", "python", 255, ["Connection refused"])
        'nobody listens there; is its ssh server up, on this port? (Connection refused)'
    """
    text = "\n".join(lines).lower()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    for symptom, advice in _SYMPTOMS:
        if symptom in text:
            said = next(line.strip() for line in reversed(lines) if symptom in line.lower())
            return f"{advice.format(host=host, python=python or sys.executable)} ({said})"
    if code == 0:
        return f"the remote shell ended without starting the agent{f' ({last})' if last else ''}"
    how = "is silent" if code is None else f"ended with exit code {code}"
    return f"the remote shell {how}{f': {last}' if last else ''}"
