"""This machine: every node is a process of its own here."""

import argparse
from collections.abc import Iterator, Mapping
from typing import ClassVar

from bireme.errors import ConfigError
from bireme.launch.base import State, Submitted
from bireme.launch.console import Printer
from bireme.launch.foreground import cancel_here, logs_here, status_here
from bireme.launch.job import JobSpec
from bireme.launch.listing import Listing
from bireme.launch.plan import THIS_MACHINE, Plan, plan_on
from bireme.launch.supervise import Limits
from bireme.launch.watch import run_plan

__all__ = ("LocalBackend",)


class LocalBackend:
    """Runs a job on this machine.

    Args:
        env: The launcher's environment.
        limits: How long to wait for what when the job ends.

    Guarantees:
        Nothing but the launcher's children knows the job's secret. When the launcher itself is
        killed, its guard ends every process that it had started.
    """

    name: ClassVar[str] = "local"
    summary: ClassVar[str] = "this machine"

    def __init__(self, env: Mapping[str, str], limits: Limits | None = None) -> None:
        self._env = env
        self._limits = limits

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add nothing: this backend needs no options."""

    @classmethod
    def from_options(cls, _options: argparse.Namespace, env: Mapping[str, str]) -> "LocalBackend":
        """Return a backend."""
        return cls(env)

    def plan(self, spec: JobSpec) -> Plan:
        """Return what runs where: everything here.

        Raises:
            ConfigError: The job names other hosts, or has no room in the slots of this one.
        """
        plan = plan_on(spec, spec.hosts or (THIS_MACHINE,))
        others = [str(host.host) for host in plan.hosts if not host.is_here]
        if others:
            raise ConfigError(f"{', '.join(others[:4])}: not this machine; use --launcher ssh")
        if spec.sync_dir:
            raise ConfigError("--sync-dir copies to other hosts, and this job runs on none")
        return plan

    def render(self, plan: Plan) -> str:
        """Return the processes and what they are told, as comments above the command."""
        listing = Listing(plan)
        lines = list(listing.job())
        for host in plan.hosts:
            lines += listing.host(host)
        return "\n".join(lines) + "\n"

    def submit(self, plan: Plan, printer: Printer) -> Submitted:
        """Run the job to its end."""
        exit_code = run_plan(plan, printer, limits=self._limits)
        return Submitted(job=plan.spec.name, exit_code=exit_code)

    def status(self, job: str) -> State:
        """Return how a job is that runs here."""
        return status_here(job, self._env)

    def cancel(self, job: str) -> None:
        """End a job that runs here."""
        cancel_here(job, self._env)

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines that a running job has kept."""
        return logs_here(job, self._env)
