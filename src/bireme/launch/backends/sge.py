"""Grid Engine: a parallel environment, or an array job.

In a parallel environment a script calls ``bireme run`` again, which starts an agent on each
granted host by ``qrsh -inherit``. The tasks of an array job are agents, too: they call a launcher
that stays where the user is. Grid Engine shows scripts, command lines and environments to
everybody, so what is private goes through a file that only its owner reads.
"""

import argparse
import selectors
import shlex
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from bireme.errors import ConfigError
from bireme.launch.again import run_again, variables_again
from bireme.launch.asking import ask
from bireme.launch.base import State, Submitted
from bireme.launch.console import Printer
from bireme.launch.envfile import handed_over, kept
from bireme.launch.hosts import Host
from bireme.launch.job import JobSpec
from bireme.launch.listing import Listing
from bireme.launch.muster import agent_command, split_words, with_package
from bireme.launch.pe import (
    find_me,
    pe_hosts,
    qrsh_step,
    qstat_output,
    qstat_state,
    qsub_number,
)
from bireme.launch.plan import HostPlan, Plan, all_elsewhere, plan_on
from bireme.launch.queued import Queue, follow, hand_in, lines_of
from bireme.launch.remote import RemoteSite
from bireme.launch.sge_array import run_array
from bireme.launch.sge_scripts import array_script, output_of, pe_script, private_file
from bireme.launch.shells import explain
from bireme.launch.site import Listener
from bireme.launch.supervise import Limits
from bireme.launch.talk import Begin
from bireme.launch.watch import run_plan

__all__ = ("SgeBackend",)

# Into a pipe qsub would say the job's number only when it ends.
_QSUB_AND_WAIT = ("stdbuf", "-oL", "qsub", "-sync", "y")


class SgeBackend:
    """Runs a job in Grid Engine.

    Args:
        env: The launcher's environment, which qsub and qrsh get too.
        granted: The hosts of the parallel job that this process is in; none outside of one.
        pe: The parallel environment to ask for.
        array: Whether to use an array job instead, with one worker in each task.
        args: More lines for the script, such as ``-P bio``.
        detach: Whether to leave a job alone once it is in the queue.
        python: The interpreter on the hosts; empty: the path of this one.
        limits: How long to wait for what when the job ends.
    """

    name: ClassVar[str] = "sge"
    summary: ClassVar[str] = "Grid Engine: a parallel environment or an array job"

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        granted: tuple[Host, ...] = (),
        pe: str = "",
        array: bool = False,
        args: tuple[str, ...] = (),
        detach: bool = False,
        python: str = "",
        limits: Limits | None = None,
    ) -> None:
        self._env, self._granted = env, granted
        self._pe, self._array, self._args = pe, array, args
        self._detach, self._limits = detach, limits
        self._python = python or sys.executable

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add what a job asks for beside its own resources."""
        parser.add_argument(
            "--sge-pe", default="", metavar="NAME", help="parallel environment (qconf -spl)"
        )
        parser.add_argument(
            "--sge-array", action="store_true", help="an array job, with a worker in each task"
        )
        parser.add_argument(
            "--sge-args", default="", metavar="ARGS", help="more for qsub, such as '-P bio'"
        )
        parser.add_argument(
            "--sge-detach", action="store_true", help="submit, and do not wait for the end"
        )
        parser.add_argument(
            "--sge-python", default="", metavar="PATH", help="Python there (default: as here)"
        )

    @classmethod
    def from_options(cls, options: argparse.Namespace, env: Mapping[str, str]) -> "SgeBackend":
        """Return a backend as the command line describes it."""
        return cls(
            env,
            granted=pe_hosts(env),
            pe=options.sge_pe,
            array=options.sge_array,
            args=split_words(options.sge_args, "--sge-args"),
            detach=options.sge_detach,
            python=options.sge_python,
        )

    def plan(self, spec: JobSpec) -> Plan:
        """Return what runs where; outside of a parallel job only an array's tasks are known.

        Raises:
            ConfigError: Nothing says how to ask for hosts, or the job names its own.
        """
        if self._granted:
            return find_me(plan_on(spec, spec.hosts or self._granted))
        if spec.hosts or spec.scheduler_host:
            raise ConfigError("Grid Engine chooses the hosts; leave -H and --scheduler-host out")
        if self._array:
            tasks = [Host(name=f"task-{i + 1}", slots=1) for i in range(spec.num_workers)]
            return all_elsewhere(plan_on(spec, tasks))
        if not self._pe:
            raise ConfigError(
                "name a parallel environment, --sge-pe mpi (qconf -spl lists them), or --sge-array"
            )
        variables_again(spec)
        return Plan(spec=spec, hosts=())

    def render(self, plan: Plan) -> str:
        """Return the script for qsub; inside of a parallel job the qrsh commands."""
        spec = plan.spec
        if self._granted:
            steps = [shlex.join(self._step(host)) for host in plan.hosts if not host.is_here]
            return "\n".join([*Listing(plan).whole(), *steps]) + "\n"
        if self._array:
            return array_script(spec, self._args, agent_command(self._python))
        again = run_again(spec, self.name, self._python)
        return pe_script(spec, self._pe, self._args, again)

    def submit(self, plan: Plan, printer: Printer) -> Submitted:
        """Run the job to its end, or put it into the queue."""
        spec = plan.spec
        if self._granted:
            exit_code = run_plan(plan, printer, self._site, self._limits)
            return Submitted(job=spec.inherited.get("JOB_ID", spec.name), exit_code=exit_code)
        if self._array:
            exit_code = run_array(plan, self.render(plan), printer, self._python, self._limits)
            return Submitted(job=spec.name, exit_code=exit_code)
        queue = Queue(
            submit=("qsub",) if self._detach else _QSUB_AND_WAIT,
            number_of=qsub_number,
            cancel=lambda number: ("qdel", number),
            env=spec.inherited,
        )
        holding = handed_over if self._detach else kept
        with holding(private_file(spec), with_package(variables_again(spec))):
            if self._detach:
                return Submitted(job=hand_in(queue, self.render(plan)), exit_code=None)
            return follow(queue, self.render(plan), lambda _: output_of(spec), printer)

    def status(self, job: str) -> State:
        """Return how a job is, by its number."""
        return qstat_state(ask(("qstat",), self._env), job)

    def cancel(self, job: str) -> None:
        """End a job, by its number."""
        ask(("qdel", job), self._env)

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines of a job's output, as long as Grid Engine knows where it is."""
        return lines_of(qstat_output(ask(("qstat", "-j", job), self._env, "do not exist")), job)

    def _site(
        self,
        host: HostPlan,
        begin: Begin,
        selector: selectors.BaseSelector,
        listener: Listener,
    ) -> RemoteSite:
        why = partial(explain, str(host.host), self._python)
        site = partial(RemoteSite, begin, self._step(host), env=self._env, preface=b"")
        return site(selector=selector, listener=listener, explain=why)

    def _step(self, host: HostPlan) -> tuple[str, ...]:
        return qrsh_step(host.host.name, self._env, self._python)
