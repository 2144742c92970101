import gc
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.collective.bank.crew import Crew
from torch.distributed import HashStore

from bireme.collective.bank.bank import Bank
from bireme.collective.bank.elements import Reduction
from bireme.collective.bank.moving import barrier, broadcast
from bireme.collective.bank.reducing import all_reduce
from bireme.errors import MismatchError, RankLost, StateError


def test_ranks_in_different_operations_all_hear_who_does_what_and_go_on():
    with Crew(3) as crew:

        def work(bank):
            tensor = torch.ones(10 if bank.rank == 1 else 20)
            try:
                all_reduce(bank, tensor, Reduction.SUM, 10)
            except MismatchError as error:
                told = str(error)
            same = torch.ones(5)
            all_reduce(bank, same, Reduction.SUM, 10)
            return told, tensor[0].item(), same[0].item()

        for told, kept, total in crew.run(work):
            assert "ranks 0, 2: all_reduce sum of 20 torch.float32" in told
            assert "rank 1: all_reduce sum of 10 torch.float32" in told
            assert kept == 1.0
            assert total == 3.0


def test_different_kinds_of_operations_are_told_apart():
    with Crew(2) as crew:

        def work(bank):
            if bank.rank:
                barrier(bank, 10)
            else:
                broadcast(bank, torch.ones(3), 0, 10)

        for error in crew.run(work):
            assert isinstance(error, MismatchError)
            assert "rank 1: barrier" in str(error)


def test_a_closed_bank_says_so_here_and_there():
    with Crew(2) as crew:
        crew.banks[1].close()
        with pytest.raises(StateError, match="destroyed"):
            barrier(crew.banks[1], 1)
        with pytest.raises(RankLost, match="rank 1 left the group"):
            barrier(crew.banks[0], 10)
        with pytest.raises(StateError, match="rank 1 left the group"):
            barrier(crew.banks[0], 10)


def test_a_bank_of_one_needs_nobody():
    bank = Bank.join(HashStore(), 3, [3], 5.0)
    tensor = torch.arange(5.0)
    for op in (Reduction.SUM, Reduction.AVG, Reduction.MAX):
        all_reduce(bank, tensor, op, 1)
    big = torch.arange(1e6)
    all_reduce(bank, big, Reduction.AVG, 1)
    assert tensor.tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(big, torch.arange(1e6))
    bank.close()


@pytest.mark.parametrize(("size", "area_bytes"), [(1, 1 << 19), (2, 1 << 20), (5, 1 << 21)])
def test_areas_grow_with_the_ranks_up_to_a_limit(size, area_bytes):
    store, members = HashStore(), list(range(size))
    with ThreadPoolExecutor(size) as threads:
        banks = list(threads.map(lambda rank: Bank.join(store, rank, members, 20.0), members))
    assert [bank.area_bytes for bank in banks] == [area_bytes] * size
    for bank in banks:
        bank.close()


def test_nothing_is_left_after_many_banks():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    def mapped():
        with open("/proc/self/maps") as maps:
            return sum("bireme-bank" in line for line in maps)

    def once():
        bank = Bank.join(HashStore(), 0, [0], 5.0, 1 << 14)
        all_reduce(bank, torch.ones(3), Reduction.SUM, 1)
        all_reduce(bank, torch.ones(3, dtype=torch.bfloat16), Reduction.SUM, 1)
        bank.close()
        bank.close()

    once()
    gc.collect()
    before = descriptors(), mapped()
    for _ in range(50):
        once()
    gc.collect()
    assert (descriptors(), mapped()) == before == (descriptors(), 0)
