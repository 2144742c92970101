"""From a place in a job to its engine. Called by `bireme.horovod` and the ``allreduce`` store."""

from bireme.collective.base import Collectives
from bireme.collective.single import SingleProcess
from bireme.errors import UnsupportedError
from bireme.types.topology import Topology

__all__ = ("start",)


def start(topology: Topology) -> Collectives:
    """Return the engine of this process.

    Raises:
        UnsupportedError: There is more than one rank.

    Example:
        >>> start(Topology.alone()).process_sets()
        {0: (0,)}
    """
    if topology.size == 1:
        return SingleProcess(topology)
    raise UnsupportedError(f"there is no engine for {topology.size} ranks yet")
