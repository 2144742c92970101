"""What a job is, and what each of its processes is told. Pure; every launcher calls ``plan``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bireme.errors import ConfigError
from bireme.launch.seats import WORLD_VARIABLES, Seat, Store, seats, world_variables
from bireme.settings import JobSettings, NodeSettings
from bireme.settings.dmlc import SPELLINGS
from bireme.settings.variables import variables
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import NodeId, Role

__all__ = ("JobSpec", "Meeting", "ProcessPlan", "identity_variables", "plan")

_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Which thread pools are sized. MKL and OpenBLAS follow the first one."""

_MOST = 1 << 20
_HERE = "localhost"

_MXNET_READS = (
    "BIREME_ROLE",
    "BIREME_NUM_WORKERS",
    "BIREME_NUM_SERVERS",
    "BIREME_SCHEDULER_HOST",
    "BIREME_SCHEDULER_PORT",
    "BIREME_RANK",
)
"""What scripts written for MXNet look for under its own names, such as ``DMLC_ROLE``."""

_OF_SERVERS = ("BIREME_NUM_SERVERS", "BIREME_SCHEDULER_HOST", "BIREME_SCHEDULER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What the user asked for.

    Raises:
        ConfigError: There is no command, a count is out of range, or ``env`` sets what only the
            launcher may set.

    Example:
        >>> spec = JobSpec(command=("python", "train.py"), num_workers=2, num_servers=1)
        >>> spec.nodes()
        [H, S[0], W[0], W[1]]
    """

    command: tuple[str, ...]
    """What every process runs. A server or the scheduler becomes what it is inside of it."""
    num_workers: int
    num_servers: int
    """0 for workers that need none: they meet each other, and there is no scheduler either."""
    settings: JobSettings = field(default_factory=JobSettings)
    node_fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of ``NodeSettings`` that all nodes share, such as ``job``, ``secret``, ``kvstore``."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the user's for every process; they come before everything inherited."""
    output_dir: str | None = None
    """Where each process's output is kept as well."""
    max_restarts: int = 3
    """How often each worker is started again when the policy for deaths is ``wait``."""

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise ConfigError("a job needs a command, such as: bireme run -n 2 python train.py")
        for name, low in (("num_workers", 1), ("num_servers", 0), ("max_restarts", 0)):
            value = getattr(self, name)
            if not low <= value <= _MOST:
                raise ConfigError(f"{name} must be >= {low} and <= {_MOST}, got {value}")
        if not self.num_servers and self.settings.death_policy is not DeathPolicy.ABORT:
            raise ConfigError(
                f"a job without servers ends with its first failure; on_worker_death "
                f"(BIREME_ON_WORKER_DEATH) {self.settings.death_policy!s} needs servers: -s 1"
            )
        taken = sorted(set(self.env) & identity_variables())
        if taken:
            raise ConfigError(f"the launcher itself sets {', '.join(taken)}; leave it to it")

    def nodes(self) -> list[NodeId]:
        """Return every node in the order in which they are started."""
        workers = [NodeId(Role.WORKER, rank) for rank in range(self.num_workers)]
        if not self.num_servers:
            return workers
        servers = [NodeId(Role.SERVER, rank) for rank in range(self.num_servers)]
        return [NodeId(Role.SCHEDULER, 0), *servers, *workers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where the nodes of a job find their scheduler, and workers each other."""

    host: str
    port: int
    """The scheduler's; of no meaning in a job without servers."""
    store: Store
    listen_fd: int | None = None
    """The socket that the scheduler inherits, where it can inherit one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process to start."""

    node: NodeId
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


def plan(
    spec: JobSpec, meeting: Meeting, inherited: Mapping[str, str], *, num_cores: int
) -> list[ProcessPlan]:
    """Return the processes of a job on one machine, in the order in which to start them.

    Args:
        spec: The job.
        meeting: Where the scheduler is.
        inherited: The launcher's own environment.
        num_cores: Cores that the processes share, >= 1.

    Raises:
        ConfigError: The settings contradict each other.

    Guarantees:
        ``NodeSettings.from_env`` and ``JobSettings.from_env`` read from a plan's environment what
        the job says, whatever ``inherited`` holds. In a job without servers ``NodeSettings`` misses
        the scheduler, and says so.
    """
    base = {name: text for name, text in inherited.items() if name not in identity_variables()}
    base.setdefault("PYTHONUNBUFFERED", "1")
    threads = str(max(1, num_cores // (spec.num_workers + spec.num_servers)))
    for name in _THREADS:
        base.setdefault(name, threads)
    plans = []
    places = seats([(_HERE, spec.num_workers)])
    for node in spec.nodes():
        seat = places[node.rank] if node.role is Role.WORKER else None
        mine = _identity(spec, meeting, node, seat)
        env = {**base, **spec.settings.to_env(), **spec.env, **mine}
        plans.append(ProcessPlan(node=node, command=spec.command, env=env))
    return plans


def identity_variables() -> frozenset[str]:
    """Return the variables that say who a node is, in every spelling."""
    ours = {variable.name for variable in variables(NodeSettings).values()}
    return WORLD_VARIABLES | ours | {SPELLINGS[name] for name in ours if name in SPELLINGS}


def _identity(spec: JobSpec, meeting: Meeting, node: NodeId, seat: Seat | None) -> dict[str, str]:
    """Return the variables that say who a node is."""
    fields = dict(spec.node_fields)
    if seat is not None:
        fields |= {"local_rank": seat.local_rank, "local_size": seat.local_size}
    if not spec.num_servers:
        fields.setdefault("kvstore", "allreduce")
    settings = NodeSettings(
        **fields,  # type: ignore[arg-type]
        role=node.role,
        rank=node.rank,
        num_workers=spec.num_workers,
        num_servers=max(1, spec.num_servers),
        scheduler_host=meeting.host,
        scheduler_port=meeting.port,
        listen_fd=meeting.listen_fd if node.role is Role.SCHEDULER else None,
    )
    mine = settings.to_env()
    if not spec.num_servers:
        # Whoever looks for servers here must hear that there are none.
        mine = {name: text for name, text in mine.items() if name not in _OF_SERVERS}
    mine |= {SPELLINGS[name]: mine[name] for name in _MXNET_READS if name in mine}
    return mine if seat is None else mine | world_variables(seat, meeting.store)
