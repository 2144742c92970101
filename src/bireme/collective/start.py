"""From a place in a job to its engine. Called by `bireme.horovod` and the ``allreduce`` store."""

from torch._C._distributed_c10d import Store

from bireme.collective.base import Collectives
from bireme.collective.single import SingleProcess
from bireme.errors import UnsupportedError
from bireme.types.topology import Topology

__all__ = ("start",)


def start(topology: Topology, *, store: Store | None = None) -> Collectives:
    """Return the engine of this process.

    Args:
        topology: This process's place in the job.
        store: Where the ranks find each other, of this engine's alone; None: there is one rank.

    Raises:
        UnsupportedError: There is more than one rank.

    Example:
        >>> start(Topology.alone()).process_sets()
        {0: (0,)}
    """
    del store
    if topology.size == 1:
        return SingleProcess(topology)
    raise UnsupportedError(f"there is no engine for {topology.size} ranks yet")
