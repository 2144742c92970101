"""Who a node is, and where it finds the scheduler: what its launcher tells it."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bireme.errors import ConfigError
from bireme.settings.dmlc import SPELLINGS, translate
from bireme.settings.variables import check_fields, env, read_fields, variables, write_fields
from bireme.types.nodes import NodeId, Role

__all__ = ("LEAST_SECRET", "NodeSettings", "Security", "is_launched")

_REQUIRED = ("role", "num_workers", "num_servers", "scheduler_host", "scheduler_port")
LEAST_SECRET = 16
"""Characters of a secret at least."""
_EVERYWHERE = frozenset({"0.0.0.0", "::"})
_HOW_TO_START = "jobs are started with: bireme run -n 2 -s 2 python train.py"


class Security(StrEnum):
    """How nodes prove to each other that they belong to the job."""

    AUTH = "auth"
    """Both ends of every link prove that they hold the job's secret."""
    TLS = "tls"
    """As ``auth``, and everything is encrypted."""
    OFF = "off"
    """No proof. Whoever reaches a port is taken in: for closed networks only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The identity of a node.

    Raises:
        ConfigError: A field is out of bounds, or fields contradict each other.

    Example:
        >>> node = NodeSettings(role=Role.WORKER, rank=1, num_workers=2, num_servers=1,
        ...     scheduler_host="127.0.0.1", scheduler_port=9091, security=Security.OFF)
        >>> node.node, node.scheduler_address
        (W[1], 'tcp://127.0.0.1:9091')
        >>> NodeSettings.from_env(node.to_env()) == node
        True
    """

    role: Role = field(metadata=env("BIREME_ROLE"))
    """``scheduler``, ``server`` or ``worker``."""
    num_workers: int = field(metadata=env("BIREME_NUM_WORKERS", low=1, high=1 << 20))
    """Workers of the job."""
    num_servers: int = field(metadata=env("BIREME_NUM_SERVERS", low=1, high=1 << 20))
    """Servers of the job."""
    scheduler_host: str = field(metadata=env("BIREME_SCHEDULER_HOST"))
    """Name or address under which every node reaches the scheduler."""
    scheduler_port: int = field(metadata=env("BIREME_SCHEDULER_PORT", low=1, high=65535))
    """The scheduler's port."""
    rank: int | None = field(default=None, metadata=env("BIREME_RANK", low=0, high=(1 << 31) - 1))
    """Number among the nodes of the role, in the order of launch. Without it the scheduler gives
    the lowest free one."""
    local_rank: int = field(default=0, metadata=env("BIREME_LOCAL_RANK", low=0, high=1 << 20))
    """Number among the workers of this machine, for scripts that choose a GPU by it."""
    local_size: int = field(default=1, metadata=env("BIREME_LOCAL_SIZE", low=1, high=1 << 20))
    """Workers of this machine."""
    job: str = field(default="", metadata=env("BIREME_JOB"))
    """Name of the job, in logs and in the names of its sockets and shared memory. The launcher
    makes one that no other job has."""
    host: str = field(default="", metadata=env("BIREME_HOST"))
    """Name or address under which others reach this node. Without it: the address from which it
    reaches the scheduler."""
    bind: str = field(default="", metadata=env("BIREME_BIND"))
    """Address on which this node listens, such as ``0.0.0.0`` for all. Without it: ``host``."""
    interface: str = field(default="", metadata=env("BIREME_INTERFACE"))
    """Network interface whose address stands for ``host``, such as ``eth0``."""
    listen_fd: int | None = field(default=None, metadata=env("BIREME_LISTEN_FD", low=0))
    """A listening socket that the launcher opened for the scheduler and the process inherited,
    so that nobody else can take the port in between."""
    secret: str = field(default="", metadata=env("BIREME_SECRET"), repr=False)
    """The job's secret, at least 16 characters; the launcher makes a random one of 64."""
    secret_file: str = field(default="", metadata=env("BIREME_SECRET_FILE"))
    """A file that holds the secret, readable by its owner only. An alternative to the variable,
    which other processes of the same user can see."""
    security: Security = field(default=Security.AUTH, metadata=env("BIREME_SECURITY"))
    """``auth`` (the default: safe, and free of cost after a link is made), ``tls`` or ``off``."""
    tls_cert: str = field(default="", metadata=env("BIREME_TLS_CERT"))
    """Certificate of this node, a PEM file; for ``tls``."""
    tls_key: str = field(default="", metadata=env("BIREME_TLS_KEY"))
    """Private key of the certificate, a PEM file; for ``tls``."""
    tls_ca: str = field(default="", metadata=env("BIREME_TLS_CA"))
    """Certificates that this node trusts, a PEM file; for ``tls``."""
    bandwidth: float = field(default=1.0, metadata=env("BIREME_BANDWIDTH", above=0))
    """Share of the bytes that a server takes, relative to the other servers. Without it the
    servers share by the speeds of links and by who runs on which machine."""
    link_mbps: float = field(default=0.0, metadata=env("BIREME_LINK_MBPS", low=0, high=1e9))
    """Speed of this machine's network link in Mbit/s, each way. It decides how much the machine's
    servers hold and in what sizes values travel. 0: it is measured when the job begins
    (`BIREME_LINK_PROBE`)."""
    kvstore: str = field(default="", metadata=env("BIREME_KVSTORE"))
    """Store type for scripts that ask for none. ``bireme run`` chooses ``dist_sync``, in a job
    without servers ``allreduce``; without a launcher it is ``local``."""
    log_level: str = field(default="warning", metadata=env("BIREME_LOG"))
    """``debug``, ``info``, ``warning`` or ``error``."""

    timeline: str = field(default="", metadata=env("BIREME_TIMELINE"))
    """A file such as ``trace.json``: each process of the job writes what it did when to one of its
    own beside it, ``trace.worker0.json``. ``bireme timeline`` joins them."""

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_rank()
        self._check_secret()
        if not self.scheduler_host:
            raise ConfigError("scheduler_host (BIREME_SCHEDULER_HOST) must name a host, got ''")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ConfigError(
                "log_level (BIREME_LOG) must be debug, info, warning or error, got "
                f"{self.log_level!r}"
            )

    def _check_rank(self) -> None:
        bound = {
            Role.SCHEDULER: 1,
            Role.SERVER: self.num_servers,
            Role.WORKER: self.num_workers,
        }[self.role]
        if self.rank is not None and self.rank >= bound:
            raise ConfigError(
                f"rank (BIREME_RANK or DMLC_TASK_ID) must be < {bound}, the number of "
                f"{self.role}s; got {self.rank}"
            )
        if self.local_rank >= self.local_size:
            raise ConfigError(
                "local_rank (BIREME_LOCAL_RANK) must be < local_size "
                f"(BIREME_LOCAL_SIZE, {self.local_size}), got {self.local_rank}"
            )

    def _check_secret(self) -> None:
        if self.security is Security.OFF:
            if _EVERYWHERE & {self.bind, self.host}:
                raise ConfigError(
                    "with security=off a node listens on one address, not on all: set bind "
                    "(BIREME_BIND) to its address in the closed network"
                )
            return
        if not self.secret and not self.secret_file:
            raise ConfigError(
                "the job has no secret: set BIREME_SECRET or BIREME_SECRET_FILE to the same on "
                "every node (bireme run does), or BIREME_SECURITY=off on a network of your own"
            )
        if self.secret and len(self.secret) < LEAST_SECRET:
            raise ConfigError(
                f"secret (BIREME_SECRET) must have at least {LEAST_SECRET} characters, got "
                f"{len(self.secret)}"
            )
        if self.security is Security.TLS and not (self.tls_cert and self.tls_key and self.tls_ca):
            raise ConfigError(
                "security=tls needs tls_cert, tls_key and tls_ca "
                "(BIREME_TLS_CERT, BIREME_TLS_KEY, BIREME_TLS_CA)"
            )

    @property
    def node(self) -> NodeId | None:
        """The node's name, or ``None`` while the scheduler has yet to give it a rank."""
        if self.role is Role.SCHEDULER:
            return NodeId(self.role, 0)
        return None if self.rank is None else NodeId(self.role, self.rank)

    @property
    def scheduler_address(self) -> str:
        """Where to reach the scheduler: ``tcp://host:port``."""
        host = self.scheduler_host
        return f"tcp://{f'[{host}]' if ':' in host else host}:{self.scheduler_port}"

    @property
    def is_on_loopback(self) -> bool:
        """Whether the whole job is on this machine, since its scheduler is reached by loopback."""
        return _is_loopback(self.scheduler_host)

    @property
    def listen_host(self) -> str | None:
        """The address to listen on; ``None``: the one from which the node reaches the scheduler.

        Never more than loopback for a job whose scheduler is on loopback, unless ``bind`` says so.
        """
        if self.bind or self.host:
            return self.bind or self.host
        if self.role is Role.SCHEDULER or _is_loopback(self.scheduler_host):
            return self.scheduler_host
        return None

    @classmethod
    def from_env(cls, mapping: Mapping[str, str]) -> "NodeSettings":
        """Read what the launcher wrote.

        Args:
            mapping: Such as ``os.environ``. ``BIREME_*`` comes before ``DMLC_*``.

        Raises:
            ConfigError: Variables are missing (all are named at once), cannot be read, or
                contradict each other.
        """
        values = read_fields(cls, translate(mapping))
        missing = [name for name in _REQUIRED if name not in values]
        if missing:
            names = ", ".join(_spellings(variables(cls)[name].name) for name in missing)
            raise ConfigError(f"this process was started without {names}; {_HOW_TO_START}")
        return cls(**values)

    def to_env(self) -> dict[str, str]:
        """Return the variables from which ``from_env`` makes the same settings."""
        return write_fields(self)


def is_launched(mapping: Mapping[str, str]) -> bool:
    """Return whether a launcher gave the process a role.

    Example:
        >>> is_launched({"DMLC_ROLE": "worker"}), is_launched({"HOME": "/root"})
        (True, False)
    """
    return bool(translate(mapping).get("BIREME_ROLE", "").strip())


def _spellings(name: str) -> str:
    other = SPELLINGS.get(name)
    return f"{name} (or {other})" if other else name


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
