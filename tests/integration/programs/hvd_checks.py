"""Runs named checks under Horovod's names in every rank of a job; what failed goes to a file."""

import json
import sys
import traceback
from pathlib import Path

import pytest
import torch

import bireme.horovod.torch as hvd


class Checks:
    """The checks of one program, in the order in which every rank runs them."""

    def __init__(self):
        self._all = []

    def __call__(self, check):
        """Take in a check, a function without arguments."""
        self._all.append(check)
        return check

    def everywhere(self, check):
        """Take in ``check(process_set, its ranks)``, for all ranks, and for each half of them."""

        def of_all_and_of_halves():
            check(hvd.global_process_set, list(range(hvd.size())))
            with Half() as half:
                check(half, list(half.ranks))

        of_all_and_of_halves.__name__ = check.__name__
        return self(of_all_and_of_halves)

    def run(self):
        """Run them, write ``<rank>.json`` into the folder that is named, and exit.

        The first that fails is the last: other ranks may be in the midst of it.
        """
        torch.set_num_threads(1)
        hvd.init()
        found = {}
        for check in self._all:
            try:
                check()
                hvd.barrier()
            except (Exception, pytest.fail.Exception):
                found[check.__name__] = traceback.format_exc()
                break
        Path(sys.argv[1], f"{hvd.rank()}.json").write_text(json.dumps(found))
        hvd.shutdown()
        sys.exit(bool(found))


class Half:
    """This rank's process set: there is one of the even ranks and one of the odd ones."""

    def __enter__(self):
        size = hvd.size()
        self._sets = [hvd.add_process_set(range(first, size, 2)) for first in range(2)]
        return self._sets[hvd.rank() % 2]

    def __exit__(self, *_):
        for each in reversed(self._sets):
            assert hvd.remove_process_set(each)
