"""From a job to every process on every host. Pure; backends call ``plan_on`` and may change it.

A plan holds all but what only the start can know: ports, addresses, numbers of cores. Those are
added on each host by :func:`bireme.launch.environment.told`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bireme.launch.environment import Meeting, forwarded, meeting_variables
from bireme.launch.hosts import Host, is_loopback
from bireme.launch.job import JobSpec
from bireme.launch.layout import Places, lay_out
from bireme.launch.seats import Seat, seats, world_variables
from bireme.settings import NodeSettings
from bireme.settings.dmlc import SPELLINGS
from bireme.types.nodes import SCHEDULER, NodeId, Role, worker

__all__ = ("THIS_MACHINE", "HostPlan", "Plan", "ProcessPlan", "all_elsewhere", "plan_on")

THIS_MACHINE = Host(name="localhost")
"""The host of a job whose user named none."""

_LATER = Meeting(scheduler_host="later", scheduler_port=1, store_host="later", store_port=1)
_NO_SERVERS = ("BIREME_NUM_SERVERS",)

_MXNET_READS = ("BIREME_ROLE", "BIREME_NUM_WORKERS", "BIREME_NUM_SERVERS", "BIREME_RANK")
"""What scripts written for MXNet look for under its own names, such as ``DMLC_ROLE``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process to start."""

    node: NodeId
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    """What the launcher and the user set for it, beyond what it inherits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What one host has to do."""

    host: Host
    is_here: bool
    """Whether it is the launcher's own machine, which needs no remote shell."""
    processes: tuple[ProcessPlan, ...]
    """In the order in which to start them."""

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """The names of the processes."""
        return tuple(process.node for process in self.processes)

    @property
    def has_scheduler(self) -> bool:
        """Whether the scheduler listens here."""
        return SCHEDULER in self.nodes

    @property
    def has_store(self) -> bool:
        """Whether rank 0 is here, by whose address workers meet each other."""
        return worker(0) in self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to start where.

    Guarantees:
        Every node of the job is on exactly one host. Ranks ascend along ``hosts``.
    """

    spec: JobSpec
    hosts: tuple[HostPlan, ...]
    """None where the cluster chooses the hosts: its own script then plans again inside."""

    @property
    def processes(self) -> dict[NodeId, ProcessPlan]:
        """Every process by its node's name, host after host."""
        return {process.node: process for host in self.hosts for process in host.processes}

    def host_of(self, node: NodeId) -> HostPlan:
        """Return the host on which ``node`` runs.

        Raises:
            KeyError: There is no such node.
        """
        for host in self.hosts:
            if node in host.nodes:
                return host
        raise KeyError(node)

    def base_for(self, host: HostPlan) -> dict[str, str]:
        """Return what the processes of a host inherit from the launcher's environment."""
        return forwarded(self.spec.inherited, elsewhere=not host.is_here)

    @property
    def is_local(self) -> bool:
        """Whether every process runs on this machine."""
        return all(host.is_here for host in self.hosts)


def plan_on(spec: JobSpec, hosts: Sequence[Host]) -> Plan:
    """Return the plan of a job on hosts with known names.

    Args:
        spec: The job.
        hosts: At least one, in the order of ranks.

    Raises:
        ConfigError: The hosts have too few slots, or settings contradict each other.

    Example:
        >>> spec = JobSpec(command=("train",), num_workers=2, num_servers=0,
        ...     node_fields={"secret": "0123456789abcdef"})
        >>> [(str(h.host), h.nodes) for h in plan_on(spec, [Host(name="a"), Host(name="b")]).hosts]
        [('a', (W[0],)), ('b', (W[1],))]
    """
    places = lay_out(hosts, spec.num_workers, spec.num_servers, spec.scheduler_host)
    chairs = seats([(place.host.name, place.num_workers) for place in places])
    shared = {role: {**spec.settings.to_env(), **spec.env_of(role)} for role in Role}
    return Plan(spec=spec, hosts=tuple(_host_plan(spec, place, chairs, shared) for place in places))


def all_elsewhere(plan: Plan) -> Plan:
    """Return a plan in which something else than the launcher starts this machine's part, too."""
    return replace(plan, hosts=tuple(replace(host, is_here=False) for host in plan.hosts))


def _host_plan(
    spec: JobSpec,
    place: Places,
    chairs: Sequence[Seat],
    shared: Mapping[Role, Mapping[str, str]],
) -> HostPlan:
    processes = []
    for node in place.nodes:
        seat = chairs[node.rank] if node.role is Role.WORKER else None
        env = {**shared[node.role], **_identity(spec, node, seat)}
        processes.append(ProcessPlan(node=node, command=spec.command, env=env))
    return HostPlan(host=place.host, is_here=_is_here(spec, place.host), processes=tuple(processes))


def _is_here(spec: JobSpec, host: Host) -> bool:
    """Whether a host is the launcher's own machine, and nobody wants another login there."""
    if host.user or host.port is not None:
        return False
    return is_loopback(host.name) or host.name == spec.here


def _identity(spec: JobSpec, node: NodeId, seat: Seat | None) -> dict[str, str]:
    """Return the variables that say who a node is, but for where the others are."""
    fields = dict(spec.node_fields)
    if seat is not None:
        fields |= {"local_rank": seat.local_rank, "local_size": seat.local_size}
    fields.setdefault("kvstore", "dist_sync" if spec.num_servers else "allreduce")
    settings = NodeSettings(
        **fields,  # type: ignore[arg-type]
        role=node.role,
        rank=node.rank,
        num_workers=spec.num_workers,
        num_servers=max(1, spec.num_servers),
        scheduler_host=_LATER.scheduler_host,
        scheduler_port=_LATER.scheduler_port,
    )
    # Whoever looks for servers in a job without must hear that there are none.
    left_out = {*meeting_variables(node, _LATER), *(() if spec.num_servers else _NO_SERVERS)}
    mine = {name: text for name, text in settings.to_env().items() if name not in left_out}
    mine |= {SPELLINGS[name]: mine[name] for name in _MXNET_READS if name in mine}
    return mine if seat is None else mine | world_variables(seat)
