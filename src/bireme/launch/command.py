"""``bireme run``: read the command line, make the job, hand it to a backend."""

import argparse
import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import bireme
from bireme.errors import ConfigError
from bireme.launch.buildcheck import describe_build, find_features
from bireme.launch.console import Console, wants_colour
from bireme.launch.horovodrun import flags_variables, notices_of
from bireme.launch.hosts import Host, parse_hosts, read_hostfile
from bireme.launch.job import LAUNCH_TIMEOUT_S, JobSpec, Resources
from bireme.launch.jobfile import set_defaults
from bireme.launch.options import LOG_LEVELS, add_options
from bireme.launch.plan import plan_on
from bireme.launch.registry import find_backend
from bireme.launch.secret import keep_secret, new_secret
from bireme.settings import JobSettings, NodeSettings, Security, notices
from bireme.settings.alias import with_alias
from bireme.settings.dmlc import translate
from bireme.settings.variables import read_fields
from bireme.types.choices import DeathPolicy

__all__ = ("add_run_command", "job_spec", "run", "with_job_file")

_EXAMPLE = """examples:
  bireme run -n 2 -s 2 python train.py --epochs 3
  bireme run -np 2 python train.py
  bireme run --as-horovod -np 2 python train.py
  bireme run -n 4 -H leda:2,castor:2 python train.py
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

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,39}")


def add_run_command(commands: Any) -> argparse.ArgumentParser:
    """Add ``run`` to the subparsers of the ``bireme`` command, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="start a job: scheduler, servers and workers",
        description="Start a scheduler, servers and workers that run COMMAND, show what they "
        "print, and end with the exit code of the first that fails.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options(parser)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    return parser


def with_job_file(
    parser: argparse.ArgumentParser, arguments: list[str], options: argparse.Namespace
) -> argparse.Namespace:
    """Return what a command line means with the job file that it names.

    Args:
        parser: That of ``add_run_command``.
        arguments: The command line after ``run``.
        options: What the parser has made of it.

    Raises:
        ConfigError: The file cannot be read, or says something that is no flag.
    """
    if options.config is None:
        return options
    set_defaults(parser, options.config)
    read = parser.parse_args(arguments)
    # An empty rest of the command line is no command; the file's stays.
    if not read.arguments:
        read.arguments = parser.get_default("arguments") or []
    return read


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    """Run the job that the command line describes and return its exit code.

    Args:
        options: What the parser of ``add_run_command`` returned.
        env: The environment that the processes inherit.

    Raises:
        ConfigError: Something about the job is wrong; nothing has been started.
    """
    if options.check_build:
        sys.stdout.write(describe_build(find_features()) + "\n")
        return 0
    spec = job_spec(options, env)
    backend = find_backend(_launcher(options, spec)).from_options(options, env)
    plan = backend.plan(spec)
    if options.dry_run:
        sys.stdout.write(backend.render(plan))
        return 0
    width = max(len(str(node)) for node in spec.nodes())
    colour = wants_colour(sys.stdout, env)
    console = Console(
        sys.stdout, sys.stderr, width=width, colour=colour, timestamps=options.timestamps
    )
    for line in (*notices(env), *notices_of(options)):
        console.say(line)
    if options.verbose:
        sys.stderr.write(backend.render(plan))
    for line in _unused(spec, backend.name):
        console.say(line)
    submitted = backend.submit(plan, console)
    if submitted.exit_code is None:
        console.say(f"{submitted.job} has been submitted")
        return 0
    return submitted.exit_code


def job_spec(options: argparse.Namespace, env: Mapping[str, str]) -> JobSpec:
    """Return the job: arguments come before the environment, the environment before defaults.

    Raises:
        ConfigError: Something about the job is wrong.
    """
    command = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    num_workers, num_servers = _counts(options)
    fields = _node_fields(options, env)
    return JobSpec(
        command=tuple(command),
        num_workers=num_workers,
        num_servers=num_servers,
        name=str(fields["job"]),
        settings=_settings(options, env),
        resources=Resources(
            cores=options.cores,
            gpus=options.gpus,
            memory_bytes=options.memory,
            time_s=options.time,
            queue=options.queue,
        ),
        node_fields=fields,
        inherited=_aliased(env) if options.as_horovod else env,
        env={**_variables(options), **_all_env(options, env)},
        server_env=_pairs(options.env_server, "--env-server", env),
        worker_env=_pairs(options.env_worker, "--env-worker", env),
        hosts=_hosts(options),
        here=socket.gethostname(),
        scheduler_host=options.scheduler_host,
        workdir=options.workdir or str(Path.cwd()),
        sync_dir=options.sync_dir,
        output_dir=options.output_dir or options.output_filename,
        output_by_rank=options.output_filename is not None,
        grace_s=options.grace_period,
        max_restarts=options.max_restarts,
        launch_timeout_s=_launch_timeout_s(options, env),
    )


def _launch_timeout_s(options: argparse.Namespace, env: Mapping[str, str]) -> float:
    if options.start_timeout is not None:
        return float(options.start_timeout)
    text = env.get("HOROVOD_START_TIMEOUT", "")
    try:
        return float(text or LAUNCH_TIMEOUT_S)
    except ValueError as error:
        raise ConfigError(
            f"HOROVOD_START_TIMEOUT must be a number of seconds, got {text!r}"
        ) from error


def _variables(options: argparse.Namespace) -> dict[str, str]:
    """Return the variables that flags of horovodrun's stand for."""
    found = flags_variables(options)
    if options.log_level is not None:
        found["HOROVOD_LOG_LEVEL"] = options.log_level.lower()
    names = _interfaces(options)
    if names:
        found |= dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), ",".join(names))
        found["HOROVOD_GLOO_IFACE"] = names[0]
    return found


def _interfaces(options: argparse.Namespace) -> list[str]:
    found = ",".join(options.network_interfaces).split(",")
    return [name.strip() for name in found if name.strip()]


def _all_env(options: argparse.Namespace, env: Mapping[str, str]) -> dict[str, str]:
    pairs = _pairs(options.env, "--env", env)
    # The user's own path for the job comes after ours.
    return _aliased(pairs) if options.as_horovod and "PYTHONPATH" in pairs else pairs


def _aliased(env: Mapping[str, str]) -> dict[str, str]:
    folder = Path(bireme.__file__).parent / "horovod" / "bootstrap"
    return with_alias(env, str(folder), separator=os.pathsep)


def _launcher(options: argparse.Namespace, spec: JobSpec) -> str:
    """Return which backend is meant where the user names none: ssh where there are other hosts."""
    if options.mpi:
        return "mpi"
    if options.launcher:
        return str(options.launcher)
    if not spec.hosts:
        return "local"
    return "local" if plan_on(spec, spec.hosts).is_local else "ssh"


def _unused(spec: JobSpec, launcher: str) -> list[str]:
    """Return a line for each resource that nobody is asked for."""
    if launcher not in ("local", "ssh"):
        return []
    resources = spec.resources
    asked = {
        "--gpus": resources.gpus,
        "--memory": resources.memory_bytes,
        "--time": resources.time_s,
        "--queue": resources.queue,
    }
    return [
        f"{flag} has no effect: --launcher {launcher} takes what its hosts have"
        for flag, value in asked.items()
        if value
    ]


def _hosts(options: argparse.Namespace) -> tuple[Host, ...]:
    if options.hosts and options.hostfile:
        raise ConfigError("-H and --hostfile both name hosts; give one")
    if options.hosts:
        return parse_hosts(options.hosts)
    if not options.hostfile:
        return ()
    try:
        text = Path(options.hostfile).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the host file: {error}") from error
    return read_hostfile(text, options.hostfile)


def _settings(options: argparse.Namespace, env: Mapping[str, str]) -> JobSettings:
    settings = JobSettings.from_env(env)
    if options.on_worker_death is not None:
        settings = replace(settings, death_policy=DeathPolicy(options.on_worker_death))
    if options.staleness is not None:
        settings = replace(settings, staleness=options.staleness)
    if options.start_timeout is not None:
        settings = replace(settings, start_timeout_s=options.start_timeout)
    if options.allow_optimizer:
        allowed = [settings.allowed_optimizers, *options.allow_optimizer]
        settings = replace(settings, allowed_optimizers=",".join(filter(None, allowed)))
    return settings


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
    # An interface is named for the way to other hosts; on one machine it is not needed.
    shared = (*_SHARED, "interface") if options.hosts or options.hostfile else _SHARED
    fields = {name: inherited[name] for name in shared if name in inherited}
    if options.kv_store is not None:
        fields["kvstore"] = options.kv_store
    if options.log_level is not None:
        fields["log_level"] = LOG_LEVELS[options.log_level]
    if _interfaces(options):
        fields["interface"] = _interfaces(options)[0]
    fields["job"] = _job_name(options.job_name)
    if options.secret_file is not None:
        fields.pop("secret", None)
        fields["secret_file"] = str(keep_secret(Path(options.secret_file)))
    elif fields.get("security") is not Security.OFF and "secret_file" not in fields:
        fields.setdefault("secret", new_secret())
    return fields


def _job_name(wanted: str) -> str:
    """Return a name that no other job has: names of sockets and shared memory begin with it."""
    if wanted and not _NAME.fullmatch(wanted):
        raise ConfigError(
            f"--job-name takes letters, digits, dots and dashes, 40 at most; got {wanted!r}"
        )
    return f"{wanted or 'job'}-{secrets.token_hex(4)}"


def _pairs(texts: list[str], option: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``NAME=VALUE`` and, with its value here, of ``NAME``."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or "\0" in text:
            raise ConfigError(
                f"{option} takes NAME=VALUE, or NAME of a variable set here: {text!r}"
            )
        if not equals and name not in env:
            raise ConfigError(f"{option} {name}: no such variable is set here; write {name}=VALUE")
        pairs[name] = value if equals else env[name]
    return pairs
