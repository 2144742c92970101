"""From a plan to what one host is told. Pure."""

import os

from bireme.launch.plan import HostPlan, Plan
from bireme.launch.talk import Begin, Start, packed
from bireme.settings import Security

__all__ = ("begin_for",)


def begin_for(plan: Plan, host: HostPlan) -> Begin:
    """Return what a host of a plan is told to get ready for."""
    spec = plan.spec
    return Begin(
        host=str(host.host),
        workdir=spec.workdir,
        base=packed(plan.base_for(host)),
        starts=tuple(
            Start(
                node=process.node,
                command=tuple(map(os.fsencode, process.command)),
                env=packed(process.env),
            )
            for process in host.processes
        ),
        has_scheduler=host.has_scheduler,
        has_store=host.has_store,
        address=spec.scheduler_host if host.has_scheduler else "",
        peer=_peer(plan, host),
        grace_s=spec.grace_s,
        sync_dir="" if host.is_here else spec.sync_dir,
        is_open=spec.node_fields.get("security") is Security.OFF,
        threads=spec.resources.cores,
    )


def _peer(plan: Plan, host: HostPlan) -> str:
    """Return a host towards which this one finds its own address; none on one machine."""
    if plan.is_local:
        return ""
    others = [each for each in plan.hosts if each is not host and not each.is_here]
    # A host that is alone, or knows of none but the launcher's, finds its own name.
    return (others[0] if others else host).host.name
