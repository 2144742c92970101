"""Runs an array job of Grid Engine: its tasks are agents that call this launcher.

Called by the backend for Grid Engine.
"""

import contextlib
from functools import partial

from bireme.launch.console import Printer
from bireme.launch.envfile import kept
from bireme.launch.muster import Muster
from bireme.launch.plan import Plan
from bireme.launch.sge_scripts import private_file
from bireme.launch.shells import explain
from bireme.launch.supervise import Limits
from bireme.launch.watch import run_plan

__all__ = ("run_array",)


def run_array(
    plan: Plan, script: str, printer: Printer, python: str, limits: Limits | None = None
) -> int:
    """Run a job to its end, and return its exit code.

    Args:
        plan: Its hosts are the tasks, in their order.
        script: What each task runs; reads ``private_file``.
        printer: Where output goes.
        python: The interpreter on the hosts.
        limits: How long to wait for what when the job ends.

    Raises:
        JobError: A task cannot do its part, or has not been started in time.
    """
    spec = plan.spec
    path = private_file(spec).with_suffix(".sh")
    with contextlib.ExitStack() as stack:
        muster = Muster(
            ("qsub", "-sync", "y", str(path)),
            spec.inherited,
            spec.name,
            partial(explain, "the first task", python),
            lambda told: stack.enter_context(kept(private_file(spec), told)),
        )
        stack.callback(path.unlink, missing_ok=True)
        path.write_text(script, encoding="utf-8")
        return run_plan(plan, printer, muster.site, limits)
