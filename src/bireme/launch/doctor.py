"""``bireme doctor``: this machine, and the jobs that run on it.

Called by the command line. Exit codes: 0 all is well, 1 something that was examined is not well,
2 the job that was asked for cannot be examined.
"""

import argparse
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bireme.errors import AuthError, BiremeError, ConfigError
from bireme.launch.checkup import (
    TRANSPORTS,
    facts,
    try_shared_collectives,
    try_transport,
)
from bireme.launch.diagnosis import describe_job, is_well
from bireme.launch.hostcheck import add_host_options, examine_hosts
from bireme.launch.inquire import ask_job
from bireme.launch.jobs import JobNote, notes_folder, running_jobs
from bireme.node.tls import tls_contexts
from bireme.settings import NodeSettings, Security
from bireme.types.nodes import Role

__all__ = ("add_doctor_command", "examine")

_EXAMPLE = """examples:
  bireme doctor                       this machine, and every job that this user runs here
  bireme doctor --job job-1f2e3d4c    one job: who is there, who waits for whom, for how long
  BIREME_SECRET_FILE=secret bireme doctor --job 10.0.0.7:9091
                                      a job elsewhere, by its scheduler's address
  bireme doctor --hosts leda,castor   whether a job could run on these hosts


Exit codes: 0 all is well; 1 a transport does not work, a job lacks a node, or a host cannot
take part; 2 there is no such
job, or it does not take the secret.
"""

Say = Callable[[str], None]


def add_doctor_command(commands: Any) -> argparse.ArgumentParser:
    """Add ``doctor`` to the subparsers of the ``bireme`` command, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="what is installed, which devices there are, how running jobs are",
        description="Examine this machine and the jobs that run on it.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--job",
        default=None,
        metavar="NAME|ADDRESS",
        help="examine only this job: its name, or its scheduler's host:port",
    )
    add_host_options(parser.add_argument_group("hosts of a job to come"))  # type: ignore[arg-type]
    return parser


def examine(options: argparse.Namespace, env: Mapping[str, str], say: Say) -> int:
    """Examine what the command line asks for, and return the exit code.

    Args:
        options: What the parser of ``add_doctor_command`` returned.
        env: The environment.
        say: Prints a line.

    Raises:
        ConfigError: There is no such job.
    """
    if options.hosts or options.hostfile:
        return examine_hosts(options, env, say, here=socket.gethostname())
    jobs = running_jobs(notes_folder(env))
    if options.job is not None:
        return _examine_job(_find(options.job, jobs, env), env, say)
    for name, value in facts(env).items():
        say(f"{name:<12} {value}")
    well = True
    for name in TRANSPORTS:
        verdict = try_transport(name)
        well &= verdict == "works"
        say(f"{name:<12} {verdict}")
    verdict = try_shared_collectives()
    well &= verdict.startswith("works")
    say(f"{'collectives':<12} {verdict}")
    say(f"{'jobs':<12} {len(jobs) or 'none'} of this user on this machine")
    worst = 0 if well else 1
    for note in jobs:
        say("")
        try:
            worst = max(worst, _examine_job(note, env, say))
        except BiremeError as error:
            say(f"  cannot be examined: {error}")
            worst = max(worst, 1)
    return worst


def _find(wanted: str, jobs: list[JobNote], env: Mapping[str, str]) -> JobNote:
    for note in jobs:
        if wanted in (note.job, note.scheduler_address):
            return note
    host, colon, port = wanted.removeprefix("tcp://").rpartition(":")
    if colon and host and port.isdigit():
        return JobNote(
            job=env.get("BIREME_JOB", ""),
            launcher_pid=0,
            scheduler_address=f"tcp://{host}:{port}",
            secret=env.get("BIREME_SECRET", ""),
            secret_file=env.get("BIREME_SECRET_FILE", ""),
            security=env.get("BIREME_SECURITY", Security.AUTH),
            command=(),
            num_workers=0,
            num_servers=0,
        )
    running = ", ".join(note.job for note in jobs) or "none"
    raise ConfigError(
        f"no job {wanted!r} of this user runs on this machine (running: {running}); a job "
        "elsewhere is named by its scheduler's host:port"
    )


def _examine_job(note: JobNote, env: Mapping[str, str], say: Say) -> int:
    command = f": {' '.join(note.command)}" if note.command else ""
    launcher = f", launcher process {note.launcher_pid}" if note.launcher_pid else ""
    say(f"{note.job or 'job'}{command}")
    if not note.scheduler_address:
        say(f"  {note.num_workers} workers, no scheduler to ask{launcher}")
        return 0
    say(f"  scheduler at {note.scheduler_address}{launcher}")
    try:
        answers = ask_job(note.scheduler_address, _secret(note), note.job, _tls(note, env))
    except AuthError as error:
        raise ConfigError(
            f"{error}; set BIREME_SECRET or BIREME_SECRET_FILE, and BIREME_JOB, to the job's"
        ) from error
    for line in describe_job(answers.scheduler, answers.servers, answers.silent):
        say(f"  {line}")
    return 0 if is_well(answers.scheduler, answers.silent) else 1


def _tls(note: JobNote, env: Mapping[str, str]) -> ssl.SSLContext | None:
    if note.security != Security.TLS:
        return None
    host, _, port = note.scheduler_address.removeprefix("tcp://").rpartition(":")
    member = NodeSettings(
        role=Role.WORKER,
        num_workers=1,
        num_servers=1,
        scheduler_host=host,
        scheduler_port=int(port),
        security=Security.TLS,
        secret_file="-",
        tls_cert=env.get("BIREME_TLS_CERT", ""),
        tls_key=env.get("BIREME_TLS_KEY", ""),
        tls_ca=env.get("BIREME_TLS_CA", ""),
    )
    return tls_contexts(member)[1]


def _secret(note: JobNote) -> bytes:
    if note.security == Security.OFF:
        return b""
    if note.secret:
        return note.secret.encode()
    if not note.secret_file:
        raise ConfigError(
            "the job's secret is needed to ask it: set BIREME_SECRET or BIREME_SECRET_FILE"
        )
    try:
        return Path(note.secret_file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the job's secret: {error}") from error
