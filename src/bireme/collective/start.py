"""From a place in a job to its engine. Called by `bireme.horovod` and the ``allreduce`` store."""

from typing import Any

import msgspec
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from bireme.collective.bank.futex import futex_number
from bireme.collective.base import Collectives
from bireme.collective.board import MAX_RANKS, Board
from bireme.collective.channel import meet
from bireme.collective.engine import Engine
from bireme.collective.single import SingleProcess
from bireme.errors import ConfigError
from bireme.settings.collective import CollectiveSettings
from bireme.types.topology import Topology

__all__ = ("start",)


def start(
    topology: Topology,
    settings: CollectiveSettings | None = None,
    *,
    store: Any = None,
) -> Collectives:
    """Return the engine of this process; every rank calls this.

    Args:
        topology: This process's place.
        settings: Rank 0's hold for all ranks.
        store: Where the ranks meet: a ``torch.distributed`` store whose keys no other start uses,
            such as a `PrefixStore` with a number of its own. Not needed by a single process.

    Raises:
        ConfigError: There are several ranks and no store.
        WaitTimeout: A rank did not come in time; named.

    Example:
        >>> start(Topology.alone()).process_sets()
        {0: (0,)}
    """
    if topology.size == 1:
        return SingleProcess(topology)
    if store is None:
        raise ConfigError(f"{topology.size} ranks need a store to meet at; pass store=")
    mine = settings or CollectiveSettings()
    channel, notice = meet(topology, store, mine.start_timeout_s, msgspec.msgpack.encode(mine))
    agreed = msgspec.msgpack.decode(notice, type=CollectiveSettings)
    try:
        board = _board(topology, store, agreed)
    except BaseException:
        channel.close()
        raise
    return Engine(topology, channel, store, agreed, board)


def _board(topology: Topology, store: Any, settings: CollectiveSettings) -> Board | None:
    """Return the board of a job on one machine, if the system has futexes to sleep at."""
    size = topology.size
    if topology.local_size != size or size > MAX_RANKS or futex_number() is None:
        return None
    return Board.join(PrefixStore("board", store), topology.rank, size, settings.start_timeout_s)
