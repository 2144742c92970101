"""Process groups whose ranks are threads of this process."""

import threading
from datetime import timedelta

from torch.distributed import HashStore

from bireme.collective.founding import found_group


def run_ranks(size, work, timeout_s=20.0, machines=""):
    """Found a group and call ``work(group)`` on every rank; exceptions are results.

    A letter of ``machines`` for each rank says where it pretends to be.
    """
    store = HashStore()
    results = [None] * size

    def call(rank):
        try:
            machine = machines and machines[rank]
            group = found_group(store, rank, size, timedelta(seconds=timeout_s), machine)
            try:
                results[rank] = work(group)
            finally:
                everybody.wait(20)
                group.shutdown()
        except Exception as error:
            results[rank] = error

    everybody = threading.Barrier(size)
    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    return results


def checked(results):
    """Return results, or raise the first exception among them."""
    for each in results:
        if isinstance(each, Exception):
            raise each
    return results
