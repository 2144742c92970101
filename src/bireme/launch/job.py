"""What a job is: one description for every cluster. Pure.

The command line and job files make it; every backend takes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bireme.errors import ConfigError
from bireme.launch.environment import identity_variables
from bireme.launch.hosts import Host
from bireme.settings import JobSettings
from bireme.types.choices import DeathPolicy
from bireme.types.nodes import SCHEDULER, NodeId, Role, server, worker

__all__ = ("GRACE_S", "LAUNCH_TIMEOUT_S", "JobSpec", "Resources")

_MOST = 1 << 20

LAUNCH_TIMEOUT_S = 60.0
"""How long every host may take where nobody says otherwise."""

GRACE_S = 5.0
"""How long processes have after SIGTERM where nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a cluster is to give the job; 0 and the empty string leave it to the cluster.

    Launchers that start processes on named hosts give what is there: they use ``cores`` for the
    sizes of thread pools only.
    """

    cores: int = 0
    """Cores for each process."""
    gpus: int = 0
    """GPUs for each worker."""
    memory_bytes: int = 0
    """Memory for each process."""
    time_s: int = 0
    """How long the job may run."""
    queue: str = ""
    """The cluster's queue or partition."""

    def __post_init__(self) -> None:
        for name in ("cores", "gpus", "memory_bytes", "time_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be >= 0, got {getattr(self, name)}")


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
    name: str = ""
    """What the job goes by, in notes, logs and queues; the launcher makes one that is unique."""
    settings: JobSettings = field(default_factory=JobSettings)
    node_fields: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Fields of ``NodeSettings`` that all nodes share, such as ``job``, ``secret``, ``kvstore``."""
    inherited: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The launcher's own environment, whole; ``environment.forwarded`` says what of it goes on."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the user's for every process; they come before everything inherited."""
    server_env: Mapping[str, str] = field(default_factory=dict)
    """Variables for servers and the scheduler only; they come before ``env``."""
    worker_env: Mapping[str, str] = field(default_factory=dict)
    """Variables for workers only; they come before ``env``."""
    hosts: tuple[Host, ...] = ()
    """Where to run, in the order of ranks; none: on this machine, or where the cluster says."""
    here: str = ""
    """This machine's name: a host of that name is reached without a remote shell."""
    scheduler_host: str = ""
    """The host on which the scheduler runs, and by which others reach it; empty: the first one."""
    resources: Resources = field(default_factory=Resources)
    workdir: str = ""
    """The folder in which every process starts, on every host; empty: the launcher's own."""
    sync_dir: str = ""
    """A folder on every host into which the launcher's folder is copied first; processes then
    start there."""
    output_dir: str | None = None
    """Where each process's output is kept as well, on the launcher's machine."""
    output_by_rank: bool = False
    """Whether ``output_dir`` has a folder for each rank, as horovodrun's, or a file for each
    node."""
    launch_timeout_s: float = LAUNCH_TIMEOUT_S
    """How long every host may take until its processes can start."""
    grace_s: float = GRACE_S
    """How long processes have after SIGTERM, as when a cluster takes the machine away, until they
    are killed."""
    max_restarts: int = 3
    """How often each worker is started again when the policy for deaths is ``wait``."""

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise ConfigError("a job needs a command, such as: bireme run -n 2 python train.py")
        for name, low in (("num_workers", 1), ("num_servers", 0), ("max_restarts", 0)):
            value = getattr(self, name)
            if not low <= value <= _MOST:
                raise ConfigError(f"{name} must be >= {low} and <= {_MOST}, got {value}")
        for name in ("launch_timeout_s", "grace_s"):
            if not 0 < getattr(self, name) < _MOST:
                raise ConfigError(f"{name} must be > 0 and < {_MOST}, got {getattr(self, name)}")
        if not self.num_servers:
            self._check_without_servers()
        taken = {*self.env, *self.server_env, *self.worker_env} & identity_variables()
        if taken:
            raise ConfigError(
                f"the launcher itself sets {', '.join(sorted(taken))}; leave it to it"
            )

    def _check_without_servers(self) -> None:
        policy = self.settings.death_policy
        if policy is not DeathPolicy.ABORT:
            raise ConfigError(
                f"a job without servers ends with its first failure; on_worker_death "
                f"(BIREME_ON_WORKER_DEATH) {policy!s} needs servers: -s 1"
            )
        if self.scheduler_host:
            raise ConfigError(
                f"a job without servers has no scheduler to put on {self.scheduler_host}; "
                "leave scheduler_host out, or start servers: -s 1"
            )

    def nodes(self) -> list[NodeId]:
        """Return every node in the order in which they are started."""
        workers = [worker(rank) for rank in range(self.num_workers)]
        if not self.num_servers:
            return workers
        return [SCHEDULER, *(server(rank) for rank in range(self.num_servers)), *workers]

    def env_of(self, role: Role) -> dict[str, str]:
        """Return the user's variables for processes of a role."""
        return {**self.env, **(self.worker_env if role is Role.WORKER else self.server_env)}
