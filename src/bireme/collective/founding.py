"""How a process group of the backend ``bireme`` comes to be. Called by ``torch.distributed``."""

import threading
import time
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore

from bireme.collective.bank.bank import Bank
from bireme.collective.bank.meeting import await_keys
from bireme.collective.exchange import Exchange, OneMachine
from bireme.collective.hierarchy import Hierarchy, Notes
from bireme.collective.network import Network, gloo_group
from bireme.collective.process_group import BiremeProcessGroup
from bireme.transport.machine import machine_token

__all__ = ("found_group",)


def found_group(
    store: Any, rank: int, size: int, timeout: timedelta, machine: str = ""
) -> BiremeProcessGroup:
    """Return this rank's side of a new group; every rank of it calls this.

    Args:
        store: A ``torch.distributed`` store with keys of its own for this group.
        rank: This rank in the group.
        size: How many ranks it has.
        timeout: Limit of the founding, and of each operation that states none.
        machine: What to call this machine, the same for its ranks only; for tests.

    Raises:
        WaitTimeout: A rank did not come; named.
    """
    deadline_s = time.monotonic() + timeout.total_seconds()
    tokens = _tell_machines(store, rank, size, deadline_s, machine or machine_token())
    # In the order of their first ranks; dict keeps it.
    machines = [
        [other for other in range(size) if tokens[other] == token]
        for token in dict.fromkeys(tokens)
    ]
    place = next(i for i, ranks in enumerate(machines) if rank in ranks)
    bank = Bank.join(store, rank, machines[place], deadline_s - time.monotonic())

    notes = Notes(store)

    made: list[Network] = []
    lock = threading.Lock()

    def flat() -> Network:
        with lock:
            if not made:
                keys = PrefixStore("flat", store)
                group = gloo_group(keys, rank, size, timeout.total_seconds(), lazy=True)
                made.append(Network(group, notes.check))
            return made[0]

    exchange: Exchange = OneMachine(bank)
    if len(machines) > 1:
        lead = None
        if bank.rank < min(map(len, machines)):
            keys = PrefixStore(f"lead/{bank.rank}", store)
            left_s = deadline_s - time.monotonic()
            lead = Network(gloo_group(keys, place, len(machines), left_s), notes.check)
        exchange = Hierarchy(bank, machines, lead, flat, notes)
    return BiremeProcessGroup(exchange, rank, size, timeout, flat)


def _tell_machines(store: Any, rank: int, size: int, deadline_s: float, machine: str) -> list[str]:
    """Return where each rank is."""
    keys = {other: f"machine/{other}" for other in range(size)}
    store.set(keys[rank], machine)
    await_keys(store, keys, deadline_s, f"rank {rank}, founding a group of {size}")
    return [store.get(keys[other]).decode() for other in range(size)]
