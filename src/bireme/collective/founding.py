"""How a process group of the backend ``bireme`` comes to be. Called by ``torch.distributed``."""

import time
from datetime import timedelta

from bireme.collective.bank.bank import Bank
from bireme.collective.bank.meeting import Store, await_keys
from bireme.collective.exchange import OneMachine
from bireme.collective.process_group import BiremeProcessGroup
from bireme.errors import UnsupportedError
from bireme.transport.machine import machine_token

__all__ = ("found_group",)


def found_group(store: Store, rank: int, size: int, timeout: timedelta) -> BiremeProcessGroup:
    """Return this rank's side of a new group; every rank of it calls this.

    Args:
        store: A ``torch.distributed`` store with keys of its own for this group.
        rank: This rank in the group.
        size: How many ranks it has.
        timeout: Limit of the founding, and of each operation that states none.

    Raises:
        WaitTimeout: A rank did not come; named.
    """
    deadline_s = time.monotonic() + timeout.total_seconds()
    machines = _tell_machines(store, rank, size, deadline_s)
    members = [other for other in range(size) if machines[other] == machines[rank]]
    if len(members) < size:
        raise UnsupportedError("the backend bireme works within one machine")
    bank = Bank.join(store, rank, members, deadline_s - time.monotonic())
    return BiremeProcessGroup(OneMachine(bank), rank, size, timeout)


def _tell_machines(store: Store, rank: int, size: int, deadline_s: float) -> list[str]:
    """Return where each rank is."""
    keys = {other: f"machine/{other}" for other in range(size)}
    store.set(keys[rank], machine_token())
    await_keys(store, keys, deadline_s, f"rank {rank}, founding a group of {size}")
    return [store.get(keys[other]).decode() for other in range(size)]
