"""Hosts on which ``mpirun`` starts processes: Open MPI, MPICH and Intel's.

MPI only starts one agent on each host. The job's processes are no part of an MPI world.
"""

import argparse
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from bireme.errors import ConfigError
from bireme.launch.base import State, Submitted
from bireme.launch.console import Printer
from bireme.launch.foreground import cancel_here, logs_here, status_here
from bireme.launch.hosts import Host
from bireme.launch.job import JobSpec
from bireme.launch.listing import Listing
from bireme.launch.mpi_words import FLAVOURS, asked_flavour, mpi_words
from bireme.launch.muster import Muster, agent_command, split_words
from bireme.launch.nodelist import slurm_hosts
from bireme.launch.plan import Plan, all_elsewhere, plan_on
from bireme.launch.shells import explain
from bireme.launch.supervise import Limits
from bireme.launch.watch import run_plan

__all__ = ("MpiBackend",)


class MpiBackend:
    """Runs a job on hosts to which ``mpirun`` finds its way.

    Args:
        env: The launcher's environment, which mpirun gets too.
        flavour: One of ``FLAVOURS``.
        program: The command.
        args: Words for it behind ours.
        python: The interpreter on the hosts; empty: the path of this one.
        limits: How long to wait for what when the job ends.

    Guarantees:
        No secret and nothing of the user's environment is in a command line.
    """

    name: ClassVar[str] = "mpi"
    summary: ClassVar[str] = "hosts that mpirun reaches (-H, --hostfile)"

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        flavour: str = "openmpi",
        program: str = "mpirun",
        args: tuple[str, ...] = (),
        python: str = "",
        limits: Limits | None = None,
    ) -> None:
        if flavour not in FLAVOURS:
            raise ConfigError(f"unknown flavour of MPI {flavour!r}; valid: {', '.join(FLAVOURS)}")
        self._env = env
        self._flavour = flavour
        self._program = program
        self._args = args
        self._python = python
        self._limits = limits

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add what mpirun is told."""
        parser.add_argument(
            "--mpi-program", default="mpirun", metavar="PROGRAM", help="default: mpirun"
        )
        parser.add_argument(
            "--mpi-flavour", choices=FLAVOURS, default=None, help="default: what it says itself"
        )
        parser.add_argument("--mpi-args", default="", metavar="ARGS", help="more words for mpirun")
        parser.add_argument(
            "--mpi-python", default="", metavar="PATH", help="Python there (default: as here)"
        )

    @classmethod
    def from_options(cls, options: argparse.Namespace, env: Mapping[str, str]) -> "MpiBackend":
        """Return a backend as the command line describes it; asks mpirun for its version.

        Raises:
            ConfigError: An option cannot be read, or mpirun is of no known family.
        """
        return cls(
            env,
            flavour=options.mpi_flavour or asked_flavour(options.mpi_program, env),
            program=options.mpi_program,
            args=split_words(options.mpi_args, "--mpi-args"),
            python=options.mpi_python,
        )

    def plan(self, spec: JobSpec) -> Plan:
        """Return what runs where; mpirun also starts what runs on this machine.

        Raises:
            ConfigError: The job names no hosts, they have too few slots, or a user or a port.
        """
        hosts = spec.hosts or slurm_hosts(spec.inherited)
        if not hosts:
            raise ConfigError("mpirun on which hosts? -H leda:2,castor:2 or --hostfile FILE")
        for host in hosts:
            _check(host)
        return all_elsewhere(plan_on(spec, hosts))

    def render(self, plan: Plan) -> str:
        """Return the one command, under comments on what its agents are told to start."""
        return "\n".join([*Listing(plan).whole(), shlex.join(self.command(plan))]) + "\n"

    def submit(self, plan: Plan, printer: Printer) -> Submitted:
        """Run the job to its end."""
        spec = plan.spec
        why = partial(explain, str(plan.hosts[0].host), self._python)
        muster = Muster(self.command(plan), spec.inherited, spec.name, why)
        exit_code = run_plan(plan, printer, muster.site, self._limits)
        return Submitted(job=spec.name, exit_code=exit_code)

    def status(self, job: str) -> State:
        """Return how a job is whose launcher runs here."""
        return status_here(job, self._env)

    def cancel(self, job: str) -> None:
        """End a job whose launcher runs here."""
        cancel_here(job, self._env)

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines that a running job has kept here."""
        return logs_here(job, self._env)

    def command(self, plan: Plan) -> tuple[str, ...]:
        """Return the words that start one agent on each host, numbered in the order of hosts."""
        words = mpi_words(self._flavour, [host.host.name for host in plan.hosts])
        return (self._program, *words, *self._args, *agent_command(self._python))


def _check(host: Host) -> None:
    if host.user or host.port is not None or ":" in host.name:
        raise ConfigError(
            f"mpirun takes names only, not {host}: put users, ports and addresses into ssh's "
            "configuration, or use --launcher ssh"
        )
