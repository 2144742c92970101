"""What a job wants: limits on every wait, the policy for deaths, sizes.

A launcher gives every process the same. Where nodes could disagree, the scheduler's settings
count: it tells them to the others when the job starts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bireme.errors import ConfigError
from bireme.settings.dmlc import translate
from bireme.settings.variables import check_fields, env, read_fields, write_fields
from bireme.types.choices import DeathPolicy

__all__ = ("JobSettings", "TransportChoice")

_BUNDLE_BYTES = 2 << 20
"""Twice as many messages of half the size take a tenth more of a step of 161 keys."""
_NAME = r"[A-Za-z_]\w*"
_IMPORTABLE = re.compile(rf"{_NAME}(\.{_NAME})*(:{_NAME})?", re.ASCII)


class TransportChoice(StrEnum):
    """How the bytes between a worker and a server travel."""

    AUTO = "auto"
    """The best for each pair: shared memory on one machine, TCP between machines."""
    SHM = "shm"
    UNIX = "unix"
    TCP = "tcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The wishes of a job.

    Raises:
        ConfigError: A field is out of bounds; the message names it, the bound and the value.

    Example:
        >>> JobSettings(barrier_timeout_s=10).to_env()["BIREME_BARRIER_TIMEOUT"]
        '10'
        >>> JobSettings.from_env({"BIREME_SLICE_BYTES": "4 MiB"}).slice_bytes
        4194304
    """

    death_policy: DeathPolicy = field(
        default=DeathPolicy.ABORT, metadata=env("BIREME_ON_WORKER_DEATH")
    )
    """What happens when a worker dies: ``abort`` ends every process within seconds, ``continue``
    weighs the sums over those who are left, ``wait`` waits for a replacement. The default is the
    only one that never changes what is computed."""
    replace_timeout_s: float = field(default=300.0, metadata=env("BIREME_REPLACE_TIMEOUT", above=0))
    """Seconds that ``wait`` waits for a replacement before the job ends. Five minutes is what a
    cluster takes to find another machine."""
    start_timeout_s: float = field(default=60.0, metadata=env("BIREME_START_TIMEOUT", above=0))
    """Seconds from the scheduler's start until every node must have joined, and that a node goes
    on trying to reach the scheduler. Raise it where machines come one by one."""
    barrier_timeout_s: float = field(default=300.0, metadata=env("BIREME_BARRIER_TIMEOUT", above=0))
    """Seconds that a barrier waits for the last worker. Raise it above the longest evaluation
    that only some workers do."""
    push_timeout_s: float = field(default=300.0, metadata=env("BIREME_PUSH_TIMEOUT", above=0))
    """Seconds until a push must be acknowledged, which includes waiting for the slowest
    worker's push of the same round."""
    pull_timeout_s: float = field(default=300.0, metadata=env("BIREME_PULL_TIMEOUT", above=0))
    """Seconds until a pulled value must have arrived, which includes waiting for its round."""
    exit_timeout_s: float = field(default=30.0, metadata=env("BIREME_EXIT_TIMEOUT", above=0))
    """Seconds for the farewell at a job's end. After it a process leaves without."""
    resend_timeout_s: float = field(default=5.0, metadata=env("BIREME_RESEND_TIMEOUT", above=0))
    """Seconds without an answer after which a message is sent again. Links are reliable, so that
    this only matters when one of them broke; servers drop what they know already."""
    heartbeat_interval_s: float = field(
        default=0.25, metadata=env("BIREME_HEARTBEAT_INTERVAL", above=0)
    )
    """Seconds between signs of life. Costs a packet of 50 bytes each."""
    heartbeat_timeout_s: float = field(
        default=20.0, metadata=env("BIREME_HEARTBEAT_TIMEOUT", above=0)
    )
    """Seconds of silence after which a node counts as dead. A killed process is noticed at once,
    by its closed link; this is for machines that vanish and processes that are stopped. It must
    be longer than a live process can be kept from running: an overloaded machine, a library that
    holds the interpreter's lock. At least twice the interval."""
    staleness: int = field(default=2, metadata=env("BIREME_STALENESS", low=0, high=1 << 20))
    """Rounds that a worker of a ``dist_bounded`` store may be ahead of the slowest, where the
    script names no other number; 0 makes it ``dist_sync``. One to three absorb jitter; more only
    makes gradients older."""
    num_shards: int = field(default=0, metadata=env("BIREME_SHARDS", low=0, high=1 << 20))
    """Parts into which a global batch is cut for the canonical sum; 0 takes one per worker. Set
    it to the largest number of workers of a job that grows and shrinks."""
    slice_bytes: int = field(
        default=2 << 20, metadata=env("BIREME_SLICE_BYTES", low=1024, high=1 << 30)
    )
    """Bytes of a slice, the unit in which large values travel and are placed. A single 40 MB
    message costs 3 to 5 times more per byte than pieces of 1 to 4 MiB."""
    max_payload_bytes: int = field(
        default=1 << 30, metadata=env("BIREME_MAX_PAYLOAD_BYTES", low=1 << 20, high=1 << 40)
    )
    """Bytes of payload in one message at most; more is refused before memory is taken. Only keys
    that are never split come near it."""
    window_bytes: int = field(
        default=16 << 20, metadata=env("BIREME_WINDOW_BYTES", low=1 << 20, high=1 << 40)
    )
    """Bytes under way on a link before the receiver must have taken some: what a receiver may
    have to hold for each peer."""
    transport: TransportChoice = field(
        default=TransportChoice.AUTO, metadata=env("BIREME_TRANSPORT")
    )
    """How bytes travel between workers and servers: ``auto``, ``shm``, ``unix`` or ``tcp``.
    ``auto`` takes the fastest that a pair of nodes has in common; a forced one that a pair does
    not have is an error."""
    relay: bool = field(default=True, metadata=env("BIREME_RELAY"))
    """Whether one worker of each machine pushes for all workers there, where there are several and
    servers on other machines: the link then carries each byte once. For synchronous stores of jobs
    that end with a worker's death."""
    link_probe: bool = field(default=True, metadata=env("BIREME_LINK_PROBE"))
    """Whether the links of several machines are measured before a job begins, where nobody stated
    their speed by `BIREME_LINK_MBPS`. Takes some tenths of a second and 16 MB at most on a link at
    a time. Shares of servers and sizes of messages follow what is found."""
    payload_crc: bool = field(default=False, metadata=env("BIREME_PAYLOAD_CRC"))
    """Whether payloads carry a checksum beyond TCP's own. Headers and messages always do. Off,
    because it reads every byte once more at both ends."""
    allowed_optimizers: str = field(default="", metadata=env("BIREME_ALLOWED_OPTIMIZERS"))
    """What servers may import when a worker asks for an optimizer that is not one of `torch.optim`:
    modules such as `mypkg.optim`, and single classes as `mypkg.optim:Lion`, separated by commas.
    Importing a module runs its code, so name only what you trust."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.importable_optimizers:
            if not _IMPORTABLE.fullmatch(name):
                raise ConfigError(
                    "allowed_optimizers (BIREME_ALLOWED_OPTIMIZERS, --allow-optimizer) must be "
                    f"modules, or classes as 'module:Class', separated by commas; got {name!r}"
                )
        if self.heartbeat_timeout_s < 2 * self.heartbeat_interval_s:
            raise ConfigError(
                "heartbeat_timeout_s must be at least twice heartbeat_interval_s "
                f"({self.heartbeat_interval_s}), got {self.heartbeat_timeout_s}"
            )
        if self.slice_bytes > self.max_payload_bytes:
            raise ConfigError(
                f"slice_bytes must be <= max_payload_bytes ({self.max_payload_bytes}), "
                f"got {self.slice_bytes}; set BIREME_SLICE_BYTES too"
            )
        if self.window_bytes < self.slice_bytes:
            raise ConfigError(
                f"window_bytes must be >= slice_bytes ({self.slice_bytes}), got "
                f"{self.window_bytes}; set BIREME_SLICE_BYTES too"
            )

    @property
    def bundle_bytes(self) -> int:
        """Bytes of slots that travel together in a message at most.

        Example:
            >>> JobSettings(max_payload_bytes=1 << 20, slice_bytes=1 << 20).bundle_bytes
            1048576
        """
        return min(_BUNDLE_BYTES, self.max_payload_bytes, self.window_bytes)

    @property
    def importable_optimizers(self) -> frozenset[str]:
        """The parts of ``allowed_optimizers``."""
        return frozenset(
            each.strip() for each in self.allowed_optimizers.split(",") if each.strip()
        )

    @classmethod
    def from_env(cls, mapping: Mapping[str, str]) -> "JobSettings":
        """Read the settings that ``mapping`` names; the others have their defaults.

        Raises:
            ConfigError: A variable cannot be read, or is out of bounds.
        """
        return cls(**read_fields(cls, translate(mapping)))

    def to_env(self) -> dict[str, str]:
        """Return the variables from which ``from_env`` makes the same settings."""
        return write_fields(self)
