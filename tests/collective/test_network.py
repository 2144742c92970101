import threading

import pytest
import torch
from torch.distributed import HashStore

from bireme.collective.bank.elements import Reduction
from bireme.collective.network import Network, check_network, gloo_group
from bireme.errors import UnsupportedError


def run(size, work, lazy=False, ranks=None):
    store, found = HashStore(), {}

    def call(rank):
        network = Network(gloo_group(store, rank, size, 20.0, lazy=lazy))
        try:
            found[rank] = work(network, rank)
            everybody.wait(20)
        finally:
            network.close()
            network.close()

    ranks = range(size) if ranks is None else ranks
    everybody = threading.Barrier(len(ranks))
    threads = [threading.Thread(target=call, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    return found


def test_collectives_of_the_network():
    def work(network, rank):
        tensor = torch.full((3,), rank + 1.0)
        network.all_reduce(tensor, Reduction.SUM, 10)()
        told = torch.full((2,), 1.0 * rank)
        network.broadcast(told, 1, 10)
        outputs = [torch.empty(1), torch.empty(1)]
        network.all_gather(torch.tensor([5.0 * rank]), outputs, 10)
        return tensor.tolist(), told.tolist(), [each.item() for each in outputs]

    assert run(2, work) == dict.fromkeys((0, 1), ([3.0] * 3, [1.0] * 2, [0.0, 5.0]))


def test_two_ranks_of_a_lazy_group_talk_without_the_third():
    def work(network, rank):
        tensor = torch.full((2,), rank + 1.0)
        if rank == 2:
            network.group.send([tensor], 0, 3).wait()
        else:
            network.group.recv([tensor], 2, 3).wait()
        return tensor.tolist()

    assert run(3, work, lazy=True, ranks=[0, 2]) == {0: [3.0, 3.0], 2: [3.0, 3.0]}


class Work:
    """An operation that is done after a number of looks, with or without an error."""

    def __init__(self, looks, error=None):
        self.looks, self.error = looks, error

    def is_completed(self):
        self.looks -= 1
        return self.looks < 0

    def wait(self, limit=None):
        if limit is not None:
            raise RuntimeError("Operation timed out!")
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("looks", range(6))
def test_an_operation_that_ends_just_after_a_look_around_is_done(looks):
    seen = []
    Network(None, lambda: seen.append(1))._await(Work(looks))
    assert len(seen) == looks // 2


@pytest.mark.parametrize("looks", range(6))
def test_an_operations_own_error_is_told(looks):
    network = Network(None)
    with pytest.raises(RuntimeError, match="reset by peer"):
        network._await(Work(looks, RuntimeError("reset by peer")))


def test_a_look_around_may_end_the_wait():
    def ended():
        raise EOFError

    with pytest.raises(EOFError):
        Network(None, ended)._await(Work(9))


def test_what_is_not_computed():
    check_network(torch.complex64, Reduction.SUM)
    for dtype, op in ((torch.complex64, Reduction.PRODUCT), (torch.uint64, Reduction.MIN)):
        with pytest.raises(UnsupportedError, match="between machines"):
            check_network(dtype, op)
