"""``bireme launch``: the flags of MXNet's ``tools/launch.py``, verbatim. Pure.

They become the flags of ``bireme run``; what that makes of them is in
:mod:`bireme.launch.command`.

Source: MXNet 1.9 ``tools/launch.py``.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from bireme.errors import ConfigError

__all__ = ("add_launch_command", "as_run_arguments", "notices_of_launch")

_EXAMPLE = """examples:
  bireme launch -n 2 --launcher local python train.py --kv-store dist_sync
  bireme launch -n 4 -s 2 -H hosts python train.py

The flags are those of MXNet's tools/launch.py; bireme run has more.
"""


def add_launch_command(commands: Any) -> argparse.ArgumentParser:
    """Add ``launch`` to the subparsers of the ``bireme`` command, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "launch",
        help="start a job with the flags of MXNet's launch.py",
        description="Start a scheduler, servers and workers that run COMMAND.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-n", "--num-workers", required=True, type=int, metavar="N", help="workers to start")
    add("-s", "--num-servers", type=int, metavar="S", help="servers (default: as many as workers)")
    add("-H", "--hostfile", default="", metavar="FILE", help="a host in each line")
    add("--sync-dst-dir", default="", metavar="DIR", help="copy this folder to DIR on every host")
    add("--launcher", default="", metavar="NAME", help="local, ssh, mpi, sge, ... (default: ssh)")
    add("--env", action="append", default=[], metavar="NAME", help="pass a variable on")
    add("--env-server", action="append", default=[], metavar="NAME:VALUE", help="set in servers")
    add("--env-worker", action="append", default=[], metavar="NAME:VALUE", help="set in workers")
    add("--p3", action="store_true", help="has no effect: priorities are always on")
    add("arguments", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    return parser


def as_run_arguments(options: argparse.Namespace, env: Mapping[str, str]) -> list[str]:
    """Return the same job as arguments of ``bireme run``.

    A command that is one word with spaces in it goes to a shell, as all commands did there.

    Args:
        options: What the parser of ``add_launch_command`` returned.
        env: The launcher's environment; what ``--env`` names and is not there is passed over.

    Raises:
        ConfigError: A variable is not named as ``NAME:VALUE``.
    """
    servers = options.num_workers if options.num_servers is None else options.num_servers
    made = ["-n", str(options.num_workers), "-s", str(servers)]
    if options.hostfile:
        made += ["--hostfile", options.hostfile]
    # The default there was ssh, which failed without hosts; here it is what fits.
    if options.launcher and not (options.launcher == "ssh" and not options.hostfile):
        made += ["--launcher", options.launcher]
    if options.sync_dst_dir:
        made += ["--sync-dir", options.sync_dst_dir]
    for name in options.env:
        if name in env or "=" in name:
            made += ["--env", name]
    for role in ("server", "worker"):
        for text in getattr(options, f"env_{role}"):
            made += [f"--env-{role}", _pair(text, f"--env-{role}")]
    words = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    if len(words) == 1 and any(map(str.isspace, words[0])):
        words = ["/bin/sh", "-c", words[0]]
    return [*made, "--", *words]


def notices_of_launch(options: argparse.Namespace) -> list[str]:
    """Return a line for each flag that has no effect."""
    found = []
    if options.p3:
        found.append("--p3 has no effect: priorities are always on")
    if options.launcher == "ssh" and not options.hostfile:
        found.append("--launcher ssh without -H FILE starts everything on this machine")
    return found


def _pair(text: str, flag: str) -> str:
    """Return ``NAME=VALUE`` for ``NAME:VALUE``; what is written as ours is taken too."""
    cut = min((index for index in (text.find(":"), text.find("=")) if index > 0), default=0)
    if not cut:
        raise ConfigError(f"{flag} takes NAME:VALUE, got {text!r}")
    return f"{text[:cut]}={text[cut + 1 :]}"
