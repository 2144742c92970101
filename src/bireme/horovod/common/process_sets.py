"""Sets of processes that run collective operations among themselves."""

from collections.abc import Iterable, Sequence

from bireme.errors import CollectiveError, ConfigError
from bireme.horovod.common.exceptions import HorovodInternalError
from bireme.horovod.session import CURRENT

__all__ = (
    "ProcessSet",
    "add_process_set",
    "check_sets",
    "global_process_set",
    "id_of",
    "prepare",
    "remove_process_set",
)


class ProcessSet:
    """Some of a job's processes, to be passed to operations once ``hvd.init`` or
    `add_process_set` has made it known.

    Args:
        ranks_or_comm: Ranks in the job, in any order.

    Raises:
        ConfigError: They are no ranks. MPI communicators are not supported.
    """  # noqa: D205

    process_set_id: int | None = None
    ranks: list[int] | None = None
    mpi_comm: object = None

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        if not isinstance(ranks_or_comm, Iterable):
            raise ConfigError(
                "ProcessSet should be initialized with a list of process ranks; MPI communicators "
                f"need an MPI build, which this is not, got {ranks_or_comm!r}"
            )
        ranks = list(ranks_or_comm)
        if any(isinstance(rank, bool) or not isinstance(rank, int) for rank in ranks):
            raise ConfigError(f"ProcessSet should be initialized with a list of ranks, got {ranks}")
        self.ranks = sorted(ranks)

    def size(self) -> int | None:
        """Return how many processes it has; ``None`` while it is not known to the job."""
        if self.process_set_id is None:
            return None
        return len(_members(self.process_set_id))

    def rank(self) -> int | None:
        """Return this process's number within the set; ``None`` while it is not known to the job.

        Roots of operations stay ranks in the job, also within a set.

        Raises:
            ConfigError: This process is not a member.
        """
        if self.process_set_id is None:
            return None
        members, rank = _members(self.process_set_id), CURRENT.topology.rank
        if rank not in members:
            raise ConfigError(f"Rank {rank} is not a member of the provided process set {self}")
        return members.index(rank)

    def included(self) -> bool | None:
        """Return whether this process is a member."""
        if self.ranks is None:
            return None
        return CURRENT.topology.rank in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"

    def _invalidate(self) -> None:
        self.process_set_id = None


global_process_set = ProcessSet([])
"""All processes of the job."""
global_process_set.process_set_id = 0


def id_of(process_set: ProcessSet) -> int:
    """Return the engine's number of a set that this process may use.

    Raises:
        ConfigError: The set is not known to the job, or this process is not a member.
    """
    if process_set.process_set_id == 0:
        return 0
    if process_set.process_set_id is None:
        raise ConfigError(
            f"{process_set} is not known to the job: pass it to hvd.init(process_sets=...) or to "
            "hvd.add_process_set(), and do not use it after hvd.remove_process_set()"
        )
    process_set.rank()
    return process_set.process_set_id


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Make a set known to the job; every process of the job calls this with the same ranks.

    Raises:
        ConfigError: There is a set of these ranks already, or they are no ranks of the job.
        HorovodInternalError: The processes do not agree on the ranks.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    ranks, engine = process_set.ranks or [], CURRENT.engine
    if tuple(ranks) in engine.process_sets().values():
        raise ConfigError(f"Attempted to add a duplicate process set: there is {ranks} already")
    try:
        process_set.process_set_id = engine.add_process_set(ranks)
    except CollectiveError as error:
        raise HorovodInternalError(str(error)) from error
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Make the job forget a set, on every process of the job.

    Returns:
        Whether it did. The set of all processes stays.
    """
    if not process_set.process_set_id:
        return False
    number = process_set.process_set_id
    process_set._invalidate()
    return CURRENT.engine.remove_process_set(number)


def check_sets(process_sets: Iterable[ProcessSet]) -> list[ProcessSet]:
    """Return the sets that ``hvd.init`` was given, before there is a job.

    Raises:
        ConfigError: Two of them have the same ranks, or some are no sets.
    """
    sets = list(process_sets)
    for number, each in enumerate(sets):
        if not isinstance(each, ProcessSet):
            raise ConfigError(f"process_sets is a list of ProcessSet, got {each!r} in it")
        if any(each.ranks == other.ranks for other in sets[:number]):
            raise ConfigError(f"process_sets has the same ranks twice: {each.ranks}")
    return sets


def prepare(process_sets: Iterable[ProcessSet]) -> None:
    """Make the sets known that ``hvd.init`` was given; called by it.

    Raises:
        ConfigError: They are no sets of this job.
    """
    global_process_set.ranks = list(_members(0))
    for process_set in process_sets:
        if process_set.ranks == global_process_set.ranks:
            process_set.process_set_id = 0
        else:
            add_process_set(process_set)


def _members(process_set_id: int) -> tuple[int, ...]:
    sets = CURRENT.engine.process_sets()
    if process_set_id not in sets:
        raise ConfigError(f"there is no process set {process_set_id}, only {list(sets)}")
    return sets[process_set_id]
