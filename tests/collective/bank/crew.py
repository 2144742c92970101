"""Runs a function as every rank of a bank, in threads of this process."""

import os
import threading

import torch

from bireme.collective.bank.bank import Bank
from bireme.collective.bank.segment import Layout, Segment, make_file


def segments(size, area_bytes=1 << 20):
    layout = Layout(size, area_bytes)
    descriptor = make_file(layout)
    try:
        return [Segment(os.dup(descriptor), layout, rank) for rank in range(size)]
    finally:
        os.close(descriptor)


class Crew:
    """A bank whose ranks are threads."""

    def __init__(self, size, area_bytes=1 << 20, first_step=0, flat_bytes=None):
        self.banks = [Bank(each, first_step=first_step) for each in segments(size, area_bytes)]
        for bank in self.banks:
            bank.flat_bytes = bank.flat_bytes if flat_bytes is None else flat_bytes

    def run(self, work):
        """Call ``work(bank)`` on every rank; return results, with exceptions as results."""
        results = [None] * len(self.banks)

        def call(rank):
            try:
                results[rank] = work(self.banks[rank])
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=call, args=(i,)) for i in range(len(self.banks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        return results

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for bank in self.banks:
            bank.close()


def values(rank, length, dtype):
    """Return numbers that differ by rank, small enough that every type holds sums of them."""
    generator = torch.Generator().manual_seed(100 + rank)
    if dtype is torch.bool:
        return torch.randint(2, (length,), generator=generator).bool()
    found = torch.randint(1, 9, (length,), generator=generator)
    if dtype.is_complex:
        return torch.complex(found.double(), found.flip(0).double()).to(dtype)
    return found.to(dtype)
