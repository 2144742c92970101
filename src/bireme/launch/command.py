"""``bireme run``: read the command line, make the job, hand it to a launcher."""

import argparse
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bireme.errors import ConfigError
from bireme.launch.console import Console, wants_colour
from bireme.launch.job import JobSpec
from bireme.launch.registry import LAUNCHERS, find_launcher
from bireme.launch.secret import keep_secret, new_secret
from bireme.settings import JobSettings, NodeSettings, Security, notices
from bireme.settings.dmlc import translate
from bireme.settings.variables import read_fields
from bireme.types.choices import DeathPolicy

__all__ = ("add_run_command", "job_spec", "run")

_EXAMPLE = """examples:
  bireme run -n 2 -s 2 python train.py --epochs 3
  bireme run -np 2 python train.py
  bireme run -n 4 --kv-store dist_async --output-dir logs python train.py
  bireme run -n 4 --kv-store dist_bounded --staleness 1 python train.py
  bireme run -n 2 --on-worker-death wait --max-restarts 10 python train.py

Every process runs the same command. With -np workers meet each other, by Horovod's names or by
torch.distributed, and there are no servers. With -n there are: in the scheduler and the servers
bireme.kvstore.create(...) serves until the job ends, and then leaves.
Limits on waiting and all other settings are environment variables; docs/env.md lists them.
"""

_SHARED = (
    "security",
    "secret",
    "secret_file",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "kvstore",
    "log_level",
    "timeline",
)
"""Fields of ``NodeSettings`` that the launcher passes on from its own environment."""


def add_run_command(commands: Any) -> argparse.ArgumentParser:
    """Add ``run`` to the subparsers of the ``bireme`` command, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="start a job: scheduler, servers and workers",
        description="Start a scheduler, servers and workers that run COMMAND, show what they "
        "print, and end with the exit code of the first that fails.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_size_options(parser)
    _add_job_options(parser)
    _add_death_options(parser)
    parser.add_argument(
        "--launcher", choices=list(LAUNCHERS), default="local", help="where to (default: local)"
    )
    for name in LAUNCHERS:
        find_launcher(name).add_options(parser)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    return parser


def _add_size_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--num-workers",
        type=int,
        default=None,
        metavar="N",
        help="workers to start, beside a scheduler and servers",
    )
    parser.add_argument(
        "-s",
        "--num-servers",
        type=int,
        default=None,
        metavar="S",
        help="servers (default: 1; 0 also means no scheduler)",
    )
    parser.add_argument(
        "-np",
        "--num-proc",
        type=int,
        default=None,
        metavar="N",
        help="workers to start that need no servers, as horovodrun and torchrun do",
    )


def _add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kv-store", default=None, metavar="TYPE", help="store type for scripts that name none"
    )
    parser.add_argument(
        "--staleness",
        type=int,
        default=None,
        metavar="S",
        help="rounds that a worker of a dist_bounded store may be ahead (default: 2)",
    )
    parser.add_argument(
        "--output-dir", default=None, metavar="DIR", help="also keep each process's output in DIR"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a variable in every process; may be repeated",
    )
    parser.add_argument(
        "--allow-optimizer",
        action="append",
        default=[],
        metavar="MODULE",
        help="let servers import MODULE for an optimizer that is not one of torch.optim; "
        "MODULE:CLASS allows one class; may be repeated",
    )
    parser.add_argument(
        "--secret-file",
        default=None,
        metavar="FILE",
        help="keep the job's secret in FILE, made for its owner only, not in the environment",
    )


def _add_death_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-worker-death",
        choices=[str(policy) for policy in DeathPolicy],
        default=None,
        help="abort the job (default), continue without the worker, or wait for a new one, "
        "which is then started in its place",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=3,
        metavar="N",
        help="with --on-worker-death wait: starts of one worker after its first (default: 3)",
    )


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    """Run the job that the command line describes and return its exit code.

    Args:
        options: What the parser of ``add_run_command`` returned.
        env: The environment that the processes inherit.

    Raises:
        ConfigError: Something about the job is wrong; nothing has been started.
    """
    spec = job_spec(options, env)
    width = max(len(str(node)) for node in spec.nodes())
    colour = wants_colour(sys.stdout, env)
    console = Console(sys.stdout, sys.stderr, width=width, colour=colour)
    for line in notices(env):
        console.say(line)
    return find_launcher(options.launcher).from_options(options).run(spec, console, env)


def job_spec(options: argparse.Namespace, env: Mapping[str, str]) -> JobSpec:
    """Return the job: arguments come before the environment, the environment before defaults.

    Raises:
        ConfigError: Something about the job is wrong.
    """
    settings = JobSettings.from_env(env)
    if options.on_worker_death is not None:
        settings = replace(settings, death_policy=DeathPolicy(options.on_worker_death))
    if options.staleness is not None:
        settings = replace(settings, staleness=options.staleness)
    if options.allow_optimizer:
        allowed = [settings.allowed_optimizers, *options.allow_optimizer]
        settings = replace(settings, allowed_optimizers=",".join(filter(None, allowed)))
    command = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    num_workers, num_servers = _counts(options)
    return JobSpec(
        command=tuple(command),
        num_workers=num_workers,
        num_servers=num_servers,
        settings=settings,
        node_fields=_node_fields(options, env),
        env=_pairs(options.env),
        output_dir=options.output_dir,
        max_restarts=options.max_restarts,
    )


def _counts(options: argparse.Namespace) -> tuple[int, int]:
    """Return how many workers and how many servers there are to be."""
    num_workers, num_proc, num_servers = options.num_workers, options.num_proc, options.num_servers
    if num_workers is not None and num_proc is not None:
        raise ConfigError(
            f"-n {num_workers} starts workers with servers and -np {num_proc} without; give one"
        )
    if num_workers is None and num_proc is None:
        raise ConfigError("how many workers? -n 2 with servers, -np 2 without")
    if num_proc is not None:
        return num_proc, num_servers or 0
    return num_workers, 1 if num_servers is None else num_servers


def _node_fields(options: argparse.Namespace, env: Mapping[str, str]) -> dict[str, object]:
    inherited = read_fields(NodeSettings, translate(env))
    fields = {name: inherited[name] for name in _SHARED if name in inherited}
    if options.kv_store is not None:
        fields["kvstore"] = options.kv_store
    fields["job"] = f"job-{secrets.token_hex(4)}"
    if options.secret_file is not None:
        fields.pop("secret", None)
        fields["secret_file"] = str(keep_secret(Path(options.secret_file)))
    elif fields.get("security") is not Security.OFF and "secret_file" not in fields:
        fields.setdefault("secret", new_secret())
    return fields


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or "\0" in text:
            raise ConfigError(f"--env takes NAME=VALUE, got {text!r}")
        pairs[name] = value
    return pairs
