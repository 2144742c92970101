"""Which of a job's processes this one is, and where they meet, whoever started them.

Pure. ``bireme run``, ``horovodrun``, ``torchrun``, ``mpirun`` of Open MPI, MPICH, Intel MPI and
MVAPICH, and ``srun`` each tell a process its number under names of their own. Precedence: ours,
Horovod's, torchrun's, MPI's, Slurm's; a process that nobody numbered is rank 0 of 1. PMIx numbers
come with Open MPI's or Slurm's.

An outer launcher leaves its variables behind when an inner one starts the processes (``torchrun``
under ``srun``), so families further down are ignored. Contradictions that no nesting explains are
errors.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bireme.errors import ConfigError
from bireme.settings.dmlc import translate
from bireme.types.topology import Topology

__all__ = ("FAMILIES", "Family", "MeetingPoint", "RankSettings", "Seat", "arrange", "first_host")

_FIRST_PORT = 20000
_NUM_PORTS = 10000
_DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True)
class Family:
    """The variables of one launcher."""

    source: str
    rank: str
    size: str
    local_rank: str = ""
    local_size: str = ""
    host: str = ""
    """What tells this process's machine from the others, where the machine's own name may not."""
    is_strict: bool = True
    """Whether one of ``rank`` and ``size`` without the other is an error."""


FAMILIES: tuple[Family, ...] = (
    Family(
        "bireme run",
        "BIREME_RANK",
        "BIREME_NUM_WORKERS",
        "BIREME_LOCAL_RANK",
        "BIREME_LOCAL_SIZE",
        is_strict=False,
    ),
    Family(
        "horovodrun",
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
        "HOROVOD_HOSTNAME",
    ),
    Family("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    Family(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Family(
        "MVAPICH",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    Family("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    # A batch script has a rank and no step: it starts the tasks and is none of them.
    Family(
        "srun",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "",
        "SLURM_NODEID",
        is_strict=False,
    ),
)
"""Every launcher that is understood, the first that numbers this process decides."""

_MADE_BY_ONE = ("bireme run", "horovodrun", "torchrun")
"""Whoever sets several of these sets them alike."""
_JOB_IDS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeetingPoint:
    """The address at which the processes of a job find each other."""

    host: str
    port: int
    is_served: bool = False
    """Whether somebody listens there already (torchrun does); if not, rank 0 does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """This process's place in its job.

    Raises:
        ConfigError: Numbers are out of bounds.

    Example:
        >>> mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
        ...     "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        >>> place = RankSettings.from_env(mpi)
        >>> place.source, place.rank, place.size, place.meeting.host
        ('Open MPI', 1, 2, '127.0.0.1')
        >>> RankSettings.from_env({}).size
        1
    """

    rank: int = 0
    size: int = 1
    local_rank: int | None = None
    """Number among the processes of the machine; ``None`` when the launcher did not say."""
    local_size: int | None = None
    host: str = ""
    """What the launcher calls this machine; empty when it did not say."""
    meeting: MeetingPoint | None = None
    """``None`` for a single process, and where a launcher of several named no place to meet."""
    source: str = ""
    """Who numbered this process; empty when nobody did."""

    def __post_init__(self) -> None:
        who = self.source or "the caller"
        if not 0 <= self.rank < self.size:
            raise ConfigError(
                f"rank must be >= 0 and < size, got rank {self.rank} of {self.size} from {who}"
            )
        if self.local_size is not None and not 1 <= self.local_size <= self.size:
            raise ConfigError(
                f"local_size must be >= 1 and <= size ({self.size}), got {self.local_size} "
                f"from {who}"
            )
        bound = self.local_size or self.size
        if self.local_rank is not None and not 0 <= self.local_rank < bound:
            raise ConfigError(
                f"local_rank must be >= 0 and < {bound}, got {self.local_rank} from {who}"
            )

    @classmethod
    def from_env(cls, mapping: Mapping[str, str]) -> "RankSettings":
        """Read a process's place from what its launcher left in ``mapping``.

        Raises:
            ConfigError: A number cannot be read, or variables contradict each other; the message
                names them.
        """
        names = _of_workers(mapping)
        family = _deciding(names)
        if family is None:
            return cls()
        size = _number(names, family.size)
        local_rank = _number(names, family.local_rank)
        local_size = _number(names, family.local_size)
        if family.source == "srun":
            local_size = _tasks_here(names)
        assert size is not None
        return cls(
            rank=_number(names, family.rank) or 0,
            size=size,
            local_rank=None if local_rank is None or local_size is None else local_rank,
            local_size=local_size,
            host=names.get(family.host, "") if family.host else "",
            meeting=None if size == 1 else _meeting(names, size, local_size),
            source=family.source,
        )

    def missing_meeting(self) -> ConfigError:
        """Return the error of a job of several processes that know no place to meet."""
        return ConfigError(
            f"{self.source or 'the caller'} started {self.size} processes on several machines and "
            "did not say where they meet: set MASTER_ADDR to the address of rank 0's machine and "
            "MASTER_PORT to a free port there, in every process (mpirun -x MASTER_ADDR=... "
            "-x MASTER_PORT=29500 ...)"
        )


@dataclass(frozen=True, slots=True)
class Seat:
    """What each rank tells the others about where it runs."""

    host: str
    local_rank: int | None = None
    local_size: int | None = None
    machine: str = ""
    """What tells apart machines, or containers, that call themselves the same."""


def arrange(seats: Sequence[Seat]) -> list[Topology]:
    """Return the place of every rank among machines, from what all said.

    What launchers said about local ranks holds; without it, ranks of one host are numbered in
    their order. ``cross_rank`` counts the hosts that have the same local rank.

    Raises:
        ConfigError: Some ranks know their local rank and others do not.

    Example:
        >>> places = arrange([Seat("a"), Seat("a"), Seat("b")])
        >>> [(each.local_rank, each.cross_rank, each.cross_size) for each in places]
        [(0, 0, 2), (1, 0, 1), (0, 1, 2)]
    """
    told = [seat.local_rank is not None and seat.local_size is not None for seat in seats]
    if any(told) and not all(told):
        silent = [rank for rank, has_told in enumerate(told) if not has_told]
        raise ConfigError(f"ranks {silent} have no local rank, and the others have one")
    hosts = [(seat.host, seat.machine) for seat in seats]
    locals_: list[tuple[int, int]] = [
        (seat.local_rank, seat.local_size)
        if seat.local_rank is not None and seat.local_size is not None
        else (hosts[:rank].count(hosts[rank]), hosts.count(hosts[rank]))
        for rank, seat in enumerate(seats)
    ]
    numbers = [local_rank for local_rank, _ in locals_]
    is_homogeneous = len({local_size for _, local_size in locals_}) == 1
    return [
        Topology(
            rank=rank,
            size=len(seats),
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=numbers[:rank].count(local_rank),
            cross_size=numbers.count(local_rank),
            is_homogeneous=is_homogeneous,
            hostname=seats[rank].host,
        )
        for rank, (local_rank, local_size) in enumerate(locals_)
    ]


def first_host(nodelist: str) -> str:
    """Return the first host of a Slurm node list.

    Example:
        >>> first_host("gpu[07-09,12],login1"), first_host("a,b"), first_host("r1n[3,5]-ib")
        ('gpu07', 'a', 'r1n3-ib')
    """
    head = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodelist.strip())
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", head.group() if head else "")


def _of_workers(mapping: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with MXNet's names carried over; servers have no rank here."""
    names = {name: text for name, text in translate(mapping).items() if text.strip()}
    if names.get("BIREME_ROLE", "worker").strip().lower() != "worker":
        names.pop("BIREME_RANK", None)
    if "BIREME_RANK" not in names:
        names.pop("BIREME_NUM_WORKERS", None)
    return names


def _deciding(names: Mapping[str, str]) -> Family | None:
    present = [family for family in FAMILIES if _is_present(family, names)]
    if not present:
        return None
    first = present[0]
    for other in present[1:]:
        if _may_differ(first, other, names):
            continue
        for ours, theirs in ((first.rank, other.rank), (first.size, other.size)):
            if _number(names, ours) != _number(names, theirs):
                raise ConfigError(
                    f"{ours}={names[ours]} ({first.source}) contradicts "
                    f"{theirs}={names[theirs]} ({other.source}); unset the stale ones"
                )
    return first


def _may_differ(first: Family, other: Family, names: Mapping[str, str]) -> bool:
    """Return whether ``other`` may be what an outer launcher left behind."""
    if first.source == "torchrun" and "TORCHELASTIC_RUN_ID" not in names:
        # RANK without torchrun is somebody's export, which every process of mpirun inherits.
        return other.source == "srun"
    return other.source not in _MADE_BY_ONE


def _is_present(family: Family, names: Mapping[str, str]) -> bool:
    has_rank, has_size = family.rank in names, family.size in names
    if has_rank != has_size and family.is_strict:
        there, absent = (family.rank, family.size) if has_rank else (family.size, family.rank)
        raise ConfigError(
            f"{there}={names[there]} is set and {absent} is not: set both, or unset {there}"
        )
    return has_rank and has_size


def _number(names: Mapping[str, str], name: str) -> int | None:
    text = names.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ConfigError(f"{name} must be an integer >= 0, got {text!r}")
    return int(text)


def _tasks_here(names: Mapping[str, str]) -> int | None:
    """Return the tasks of this node, from a list such as ``2(x3),1``."""
    node = _number(names, "SLURM_NODEID")
    counts: list[int] = []
    for part in names.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\(x(\d+)\))?\s*", part)
        if match:
            counts += [int(match[1])] * int(match[2] or 1)
    return counts[node] if node is not None and node < len(counts) else None


def _meeting(names: Mapping[str, str], size: int, local_size: int | None) -> MeetingPoint | None:
    for host_name, port_name in (
        # First, since the script's own torch.distributed may serve the other one.
        ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
        ("MASTER_ADDR", "MASTER_PORT"),
    ):
        if host_name in names:
            port = _number(names, port_name)
            agent = names.get("TORCHELASTIC_USE_AGENT_STORE", "").strip()
            is_served = agent == "True" and port_name == "MASTER_PORT"
            return _checked(names[host_name].strip(), port or _DEFAULT_PORT, port_name, is_served)
    port = _number(names, "MASTER_PORT") or _port_of(names)
    nodes = names.get("SLURM_STEP_NODELIST") or names.get("SLURM_JOB_NODELIST", "")
    if local_size == size:
        return _checked("127.0.0.1", port, "MASTER_PORT", False)
    if nodes:
        return _checked(first_host(nodes), port, "MASTER_PORT", False)
    return None


def _checked(host: str, port: int, name: str, is_served: bool) -> MeetingPoint:
    if not 1 <= port <= 65535:
        raise ConfigError(f"{name} must be >= 1 and <= 65535, got {port}")
    return MeetingPoint(host=host, port=port, is_served=is_served)


def _port_of(names: Mapping[str, str]) -> int:
    """Return a port that all processes of a job derive alike, below those given to clients."""
    job = next((names[name] for name in _JOB_IDS if name in names), "")
    if "SLURM_JOB_ID" in names:
        job += f"{names['SLURM_JOB_ID']}.{names.get('SLURM_STEP_ID', '')}"
    return _FIRST_PORT + zlib.crc32(job.encode()) % _NUM_PORTS
