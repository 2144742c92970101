"""From what the launcher said to an engine: where ranks meet, and what they tell each other first.

Called by whoever starts an engine from the environment: ``hvd.init()`` and the ``allreduce`` store.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from bireme.collective import Collectives, start
from bireme.collective.bank.patience import are_set_within
from bireme.errors import CollectiveError, ConfigError
from bireme.settings.collective import CollectiveSettings
from bireme.settings.ranks import MeetingPoint, RankSettings, Seat, arrange
from bireme.transport.machine import machine_token
from bireme.types.topology import Topology

__all__ = ("Assembly",)

_START_TIMEOUT_S = 120.0


class Assembly:
    """Where the processes of a job meet, again and again.

    Every meeting has a number of its own in all keys, so that nothing of an earlier one is read.
    The store is kept between meetings: rank 0 serves it as long as its process lives.

    Args:
        name: Tells the meetings of one part of a program from those of another.
    """

    def __init__(self, name: str = "ranks") -> None:
        self._name = name
        self._stores: dict[MeetingPoint, Store] = {}
        self._epochs: dict[str, int] = {}

    def start(
        self,
        place: RankSettings,
        env: Mapping[str, str],
        host_name: str,
        ranks: Sequence[int] | None = None,
    ) -> Collectives:
        """Return the engine of this process, once all processes are there.

        Args:
            place: What the launcher said.
            env: Settings of the engine.
            host_name: What this machine calls itself.
            ranks: Which ranks take part, the same on all of them; None: all.

        Raises:
            ConfigError: This rank is not among ``ranks``, or settings are wrong.
            CollectiveError: The others did not come in time.
        """
        chosen = _chosen(place, ranks)
        if place.size == 1:
            return start(Topology.alone())
        store = self._store(place, env, chosen)
        if len(chosen) == 1:
            return start(Topology.alone())
        seat = Seat(place.host or host_name, place.local_rank, place.local_size, machine_token())
        if len(chosen) < place.size:
            seat = replace(seat, local_rank=None, local_size=None)
        seats = _exchange(store, chosen.index(place.rank), len(chosen), seat, _limit_s(env))
        topology = arrange(seats)[chosen.index(place.rank)]
        engine = start(topology, CollectiveSettings.from_env(env), store=store)
        # Nobody may leave while others still connect: they would take it for lost.
        store.set(f"up/{topology.rank}", "")
        _await_up(store, topology.size)
        return engine

    def _store(
        self, place: RankSettings, env: Mapping[str, str], chosen: Sequence[int]
    ) -> PrefixStore:
        if place.meeting is None:
            raise place.missing_meeting()
        timeout_s = _limit_s(env)
        if place.meeting not in self._stores:
            self._stores[place.meeting] = _open(place, place.meeting, timeout_s)
        who = "all" if len(chosen) == place.size else "-".join(map(str, chosen))
        epoch = self._epochs[who] = self._epochs.get(who, 0) + 1
        store = PrefixStore(f"bireme/{self._name}/{who}/{epoch}", self._stores[place.meeting])
        store.set_timeout(timedelta(seconds=timeout_s))
        return store


def _limit_s(env: Mapping[str, str]) -> float:
    return float(env.get("HOROVOD_START_TIMEOUT") or _START_TIMEOUT_S)


def _chosen(place: RankSettings, ranks: Sequence[int] | None) -> list[int]:
    chosen = list(range(place.size)) if ranks is None else list(ranks)
    if place.rank not in chosen:
        raise ConfigError(f"rank {place.rank} is not among the ranks that were chosen, {chosen}")
    if len(set(chosen)) != len(chosen) or not all(0 <= each < place.size for each in chosen):
        raise ConfigError(f"ranks are different integers >= 0 and < {place.size}, got {chosen}")
    return chosen


def _open(place: RankSettings, meeting: MeetingPoint, timeout_s: float) -> Store:
    serves = place.rank == 0 and not meeting.is_served
    try:
        # multi_tenant: a script's own init_process_group may use the same port in this process.
        return TCPStore(
            meeting.host,
            meeting.port,
            is_master=serves,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        what = "listen at" if serves else f"reach rank 0 within {timeout_s:g} s at"
        raise CollectiveError(
            f"rank {place.rank} cannot {what} {meeting.host}:{meeting.port} "
            f"(MASTER_ADDR, MASTER_PORT): {error}"
        ) from error


def _exchange(store: Store, rank: int, size: int, mine: Seat, limit_s: float) -> list[Seat]:
    """Tell the others where this rank runs and return what all said."""
    store.set(f"seat/{rank}", json.dumps(astuple(mine)))
    keys = _keys("seat", size)
    # Others may be minutes late, and who waits for them is to hear of Ctrl-C.
    if not are_set_within(store, keys, limit_s):
        raise _late(store, keys)
    return [Seat(*json.loads(text)) for text in store.multi_get(keys)]


def _await_up(store: Store, size: int) -> None:
    """Wait until all have what they need of the store; its process may end right after."""
    keys = _keys("up", size)
    try:
        store.multi_get(keys)
    except RuntimeError as error:
        raise _late(store, keys) from error


def _keys(what: str, size: int) -> list[str]:
    return [f"{what}/{each}" for each in range(size)]


def _late(store: Store, keys: Sequence[str]) -> CollectiveError:
    absent = [rank for rank, key in enumerate(keys) if not store.check([key])]
    return CollectiveError(
        f"of {len(keys)} ranks, {absent} did not start in time (HOROVOD_START_TIMEOUT)"
    )
