"""Slurm: an allocation, or a batch job that asks for one.

Inside of an allocation one ``srun`` starts an agent on each node. Outside, the batch script calls
``bireme run`` for the same job inside.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from bireme.errors import ConfigError
from bireme.launch.again import run_again, variables_again
from bireme.launch.asking import ask
from bireme.launch.base import State, Submitted
from bireme.launch.console import Printer
from bireme.launch.job import JobSpec
from bireme.launch.listing import Listing
from bireme.launch.muster import Muster, agent_command, split_words
from bireme.launch.nodelist import slurm_hosts
from bireme.launch.plan import Plan, all_elsewhere, plan_on
from bireme.launch.queued import Queue, follow, hand_in, lines_of
from bireme.launch.shells import explain
from bireme.launch.slurm_words import shown, shown_exit_code, shown_state
from bireme.launch.supervise import Limits
from bireme.launch.watch import run_plan

__all__ = ("SlurmBackend",)

_OF_STEPS = (
    *("SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_CPU_BIND"),
    *("SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_DISTRIBUTION"),
)
"""What srun would take for wishes: an agent is to have all that the job has on its node."""


class SlurmBackend:
    """Runs a job in Slurm.

    Args:
        env: The launcher's environment, which srun and sbatch get too.
        nodes: How many nodes to ask for; 0 leaves it to Slurm.
        args: More lines for the batch script, such as ``--account=bio``.
        detach: Whether to leave a batch job alone once it is in the queue.
        python: The interpreter on the nodes; empty: the path of this one.
        limits: How long to wait for what when the job ends.

    Guarantees:
        No secret and no value of a variable is in a command line or in the script.
    """

    name: ClassVar[str] = "slurm"
    summary: ClassVar[str] = "Slurm: an allocation, or a batch job where there is none"

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        nodes: int = 0,
        args: tuple[str, ...] = (),
        detach: bool = False,
        python: str = "",
        limits: Limits | None = None,
    ) -> None:
        if nodes < 0:
            raise ConfigError(f"--slurm-nodes must be >= 0, got {nodes}")
        self._env = env
        self._nodes = nodes
        self._args = args
        self._detach = detach
        self._python = python
        self._limits = limits

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add what a batch job asks for beside the job's own resources."""
        parser.add_argument(
            "--slurm-nodes", type=int, default=0, metavar="N", help="nodes to ask for"
        )
        parser.add_argument(
            "--slurm-args", default="", metavar="ARGS", help="more for sbatch: '--account=bio'"
        )
        parser.add_argument(
            "--slurm-detach", action="store_true", help="submit, and do not wait for the end"
        )
        parser.add_argument(
            "--slurm-python", default="", metavar="PATH", help="Python there (default: as here)"
        )

    @classmethod
    def from_options(cls, options: argparse.Namespace, env: Mapping[str, str]) -> "SlurmBackend":
        """Return a backend as the command line describes it."""
        return cls(
            env,
            nodes=options.slurm_nodes,
            args=split_words(options.slurm_args, "--slurm-args"),
            detach=options.slurm_detach,
            python=options.slurm_python,
        )

    def plan(self, spec: JobSpec) -> Plan:
        """Return what runs where; nothing is placed yet outside of an allocation."""
        hosts = slurm_hosts(spec.inherited)
        if not hosts:
            variables_again(spec)
            return Plan(spec=spec, hosts=())
        return all_elsewhere(plan_on(spec, spec.hosts or hosts))

    def render(self, plan: Plan) -> str:
        """Return the batch script; inside of an allocation the srun command, under comments."""
        if not plan.hosts:
            lines = ["#!/bin/sh", *(f"#SBATCH {word}" for word in self._wishes(plan.spec))]
            again = run_again(plan.spec, self.name, self._python or sys.executable)
            return "\n".join([*lines, f"exec {shlex.join(again)}"]) + "\n"
        return "\n".join([*Listing(plan).whole(), shlex.join(self._step(plan))]) + "\n"

    def submit(self, plan: Plan, printer: Printer) -> Submitted:
        """Run the job to its end, or put it into the queue."""
        spec = plan.spec
        if plan.hosts:
            why = partial(explain, str(plan.hosts[0].host), self._python)
            env = {name: text for name, text in spec.inherited.items() if name not in _OF_STEPS}
            muster = Muster(self._step(plan), env, spec.name, why)
            exit_code = run_plan(plan, printer, muster.site, self._limits)
            return Submitted(job=spec.inherited["SLURM_JOB_ID"], exit_code=exit_code)
        queue = Queue(
            submit=("sbatch", "--parsable"),
            number_of=lambda said: said.partition("\n")[0].partition(";")[0].strip(),
            cancel=lambda number: ("scancel", number),
            env=variables_again(spec),
            exit_code=lambda number: shown_exit_code(self._show(number)),
        )
        if self._detach:
            return Submitted(job=hand_in(queue, self.render(plan)), exit_code=None)
        return follow(queue, self.render(plan), lambda number: _output(spec, number), printer)

    def status(self, job: str) -> State:
        """Return how a job is, by its number."""
        return shown_state(self._show(job))

    def cancel(self, job: str) -> None:
        """End a job, by its number."""
        ask(("scancel", job), self._env)

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines of a batch job's output."""
        return lines_of(shown(self._show(job), "StdOut"), job)

    def _show(self, job: str) -> str:
        return ask(("scontrol", "--oneliner", "show", "job", job), self._env, "invalid job id")

    def _wishes(self, spec: JobSpec) -> Iterator[str]:
        resources = spec.resources
        yield f"--job-name={spec.name or 'bireme'}"
        yield f"--ntasks={spec.num_workers}"
        yield f"--output={shlex.quote(str(_output(spec, '%j')))}"
        yield "--export=ALL"
        for flag, value in (
            ("nodes", self._nodes),
            ("nodelist", ",".join(host.name for host in spec.hosts)),
            ("cpus-per-task", resources.cores),
            ("gpus-per-task", resources.gpus),
            ("mem-per-cpu", _mebibytes(resources.memory_bytes, max(1, resources.cores))),
            ("time", -(-resources.time_s // 60)),
            ("partition", resources.queue),
        ):
            if value:
                yield f"--{flag}={value}"
        yield from self._args

    def _step(self, plan: Plan) -> tuple[str, ...]:
        names = ",".join(host.host.name for host in plan.hosts)
        size = str(len(plan.hosts))
        return (
            *("srun", f"--nodes={size}", f"--ntasks={size}", "--ntasks-per-node=1"),
            *(f"--nodelist={names}", "--overlap", "--cpu-bind=none", "--kill-on-bad-exit=0"),
            *("--export=ALL", *agent_command(self._python)),
        )


def _output(spec: JobSpec, number: str) -> Path:
    return Path(spec.output_dir or spec.workdir or ".") / f"slurm-{number}.log"


def _mebibytes(size_bytes: int, parts: int) -> int:
    return -(-size_bytes // (parts << 20))
