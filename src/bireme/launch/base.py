"""What a launcher's backend is: it plans a job, shows the plan, and hands it to a cluster.

A new one is one file in ``launch/backends``, under 200 lines: a class with these members, and a
line in ``launch.registry``. Plan and render are pure, so that golden files test them without a
cluster. Two kinds exist: those that run the job in the foreground (``local``, ``ssh``: they plan
with :func:`bireme.launch.plan.plan_on`, run with :func:`bireme.launch.watch.run_plan` and end with
the job), and those that hand a script to a queue (its ``Plan`` may have no hosts: the script calls
``bireme run`` again where hosts are known).

How processes live and die is not a backend's matter. ``run_plan`` asks it for one thing: a
:class:`~bireme.launch.remote.RemoteSite` for each host that is not this machine, made with the
words of whatever starts :func:`bireme.launch.shells.agent_line` there and leaves its standard input
and output as they are: ``ssh HOST``, ``srun -N1 -n1 -w HOST``, ``qrsh -inherit HOST``, ``mpirun -np
1 -host HOST``. See ``SshBackend._site``.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol

from bireme.launch.console import Printer
from bireme.launch.job import JobSpec
from bireme.launch.plan import Plan

__all__ = ("Backend", "State", "Submitted")


class State(StrEnum):
    """How a job is that was submitted."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """With whichever exit code; of a cluster that keeps none, also: never heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What ``submit`` returns.

    Args:
        job: What ``status``, ``cancel`` and ``logs`` take: the cluster's own id, or the job's
            name.
        exit_code: The job's, where it has run to its end; ``None`` where it has been queued.
    """

    job: str
    exit_code: int | None


class Backend(Protocol):
    """Runs jobs somewhere.

    Guarantees:
        ``plan`` and ``render`` touch nothing and ask nobody: the same job gives the same plan and
        the same text. No rendered text and no command line holds a secret.
        A ``submit`` in the foreground returns when no process of the job is left, or raises with
        none left. Its exit code is that of the first process that failed, 0 when none did, and 128
        and the signal's number when the launcher was told to stop.
    """

    name: ClassVar[str]
    """What ``--launcher`` calls it, and the name of its file."""

    summary: ClassVar[str]
    """Where it runs jobs, in a few words for the help."""

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options that only this backend has; each starts with ``--`` and its name."""

    @classmethod
    def from_options(cls, options: argparse.Namespace, env: Mapping[str, str]) -> "Backend":
        """Return a backend as the command line describes it.

        Args:
            options: What a parser with the options of every backend returned.
            env: The launcher's environment.

        Raises:
            ConfigError: An option is wrong.
        """

    def plan(self, spec: JobSpec) -> Plan:
        """Return what runs where. Pure.

        Raises:
            ConfigError: The job cannot run here.
        """

    def render(self, plan: Plan) -> str:
        """Return exactly what ``submit`` hands over: a script, or commands. Pure."""

    def submit(self, plan: Plan, printer: Printer) -> Submitted:
        """Run the job, or put it into the cluster's queue.

        Args:
            plan: What ``plan`` returned.
            printer: Where processes and the launcher print to.

        Raises:
            ConfigError: The job cannot start here; nothing is left running.
            JobError: A host or the cluster refused; nothing is left running.
        """

    def status(self, job: str) -> State:
        """Return how a job is."""

    def cancel(self, job: str) -> None:
        """End a job; one that has ended is left as it is."""

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines of a job's output so far, each behind the name of its file.

        Raises:
            ConfigError: The job kept none.
        """
