"""Runs named checks under Horovod's names in every rank of a job; what failed goes to a file."""

import json
import sys
import traceback
from pathlib import Path

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
            except Exception:
                found[check.__name__] = traceback.format_exc()
                break
        Path(sys.argv[1], f"{hvd.rank()}.json").write_text(json.dumps(found))
        hvd.shutdown()
        sys.exit(bool(found))
