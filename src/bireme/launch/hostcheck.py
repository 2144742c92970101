"""``bireme doctor --hosts``: whether a job could run on these hosts. Nothing is started there.

Called by :mod:`bireme.launch.doctor`.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bireme.errors import ConfigError
from bireme.launch.backends.ssh import SshBackend
from bireme.launch.hosts import Host, is_loopback, parse_hosts, read_hostfile
from bireme.launch.shells import explain
from bireme.launch.survey import survey
from bireme.launch.survey_report import Reference, is_well, routes, survey_table
from bireme.launch.versions import versions

__all__ = ("add_host_options", "examine_hosts")

_LIMIT_S = 30.0


def add_host_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name hosts, and say how ssh gets there."""
    parser.add_argument(
        "-H", "--hosts", default="", metavar="HOST,...", help="examine these hosts instead"
    )
    parser.add_argument(
        "--hostfile", default="", metavar="FILE", help="the same, from a file with a host in a line"
    )
    SshBackend.add_options(parser)


def examine_hosts(
    options: argparse.Namespace,
    env: Mapping[str, str],
    say: Callable[[str], None],
    *,
    here: str,
) -> int:
    """Print a table of the hosts, and what to do for each cross; return 0 when there is none.

    Args:
        options: What a parser with ``add_host_options`` returned.
        env: The environment.
        say: Prints a line.
        here: This machine's name.

    Raises:
        ConfigError: The hosts cannot be read.
    """
    hosts = {host.name: host for host in _hosts(options)}
    ssh = SshBackend.from_options(options, env)
    python = options.ssh_python or sys.executable
    reference = Reference(
        python=platform.python_version(), packages=versions(), folder=str(Path.cwd())
    )

    def way(name: str, command: Sequence[str]) -> Sequence[str]:
        if is_loopback(name) or name == here:
            return command
        return ssh.remote(hosts[name], command, _LIMIT_S)

    path = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    findings = survey(
        list(hosts),
        reference,
        way,
        lambda name: partial(explain, str(hosts[name]), python),
        python=python,
        path=path,
        limit_s=_LIMIT_S,
    )
    tick, cross = _marks(sys.stdout.encoding)
    for line in (*survey_table(reference, findings, tick=tick, cross=cross), *routes(findings)):
        say(line)
    return 0 if is_well(reference, findings) else 1


def _hosts(options: argparse.Namespace) -> tuple[Host, ...]:
    if options.hosts and options.hostfile:
        raise ConfigError("--hosts and --hostfile both name hosts; give one")
    if options.hosts:
        return parse_hosts(options.hosts)
    try:
        return read_hostfile(Path(options.hostfile).read_text(encoding="utf-8"), options.hostfile)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the host file: {error}") from error


def _marks(encoding: str | None) -> tuple[str, str]:
    """Return a tick and a cross that a terminal can show."""
    try:
        "\u2713\u2717".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "ok", "NO"
    return "\u2713", "\u2717"
