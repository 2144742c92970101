"""Several ranks in one process, a thread each: real channels and real exchanges."""

import contextlib
import threading

from torch.distributed import HashStore, PrefixStore

from bireme.collective import Topology, start
from bireme.settings.collective import CollectiveSettings

__all__ = ("LIMIT_S", "on_ranks", "started")

LIMIT_S = 20.0
"""No wait in a test is longer."""


def on_ranks(size, action):
    """Call ``action(rank)`` in a thread for each rank, and return the results in their order."""
    results = [None] * size
    errors = []

    def run(rank):
        try:
            results[rank] = action(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a rank is stuck"
    return results


@contextlib.contextmanager
def started(size, **settings):
    """Yield the engines of a job, and close them."""
    store = HashStore()
    chosen = CollectiveSettings(**{"start_timeout_s": LIMIT_S, "cpu_backend": "gloo", **settings})

    def begin(rank):
        place = Topology.on_one_machine(rank, size)
        return start(place, chosen, store=PrefixStore("job", store))

    engines = on_ranks(size, begin)
    try:
        yield engines
    finally:
        on_ranks(size, lambda rank: engines[rank].close())
