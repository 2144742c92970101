"""Runs named checks in every worker of a job and writes what came out, one file for each rank."""

import json
import os
import re
import sys
import traceback
from pathlib import Path

import pytest
import torch

import bireme


class Checks:
    """The checks of one program, in the order in which every worker runs them."""

    def __init__(self):
        self._named = []

    def __call__(self, check):
        """Take in ``check(job)``."""
        self._named.append(check)
        return check

    def names(self):
        """Return the checks' names."""
        return [check.__name__ for check in self._named]

    def run(self):
        """Serve, or run every check and write ``<rank>.json`` into the folder that is named."""
        torch.set_num_threads(1)
        torch.sparse.check_sparse_tensor_invariants.enable()
        out = Path(sys.argv[1])
        (out / f"{os.environ['BIREME_ROLE']}.pid").write_text(str(os.getpid()))
        bireme.run_role()
        with bireme.kvstore.create("dist_sync") as keeper:
            job = Job(keeper, out)
            outcomes = {}
            for check in self._named:
                outcomes[check.__name__] = outcome(check, job)
            (out / f"{job.rank}.json").write_text(json.dumps(outcomes))
            keeper.barrier()


def outcome(check, job):
    """Return the empty string, or what went wrong."""
    try:
        check(job)
    except Exception:
        return traceback.format_exc()
    return ""


class Job:
    """One worker's view of the job."""

    def __init__(self, keeper, out):
        self.keeper = keeper
        self.rank, self.size = keeper.rank, keeper.num_workers
        self.out = out
        self.sum_of_ranks = self.size * (self.size + 1) / 2
        """1 + 2 + ... + n: what the workers' ``rank + 1`` come to."""

    def store(self, kind="dist_sync"):
        """Make a store; every worker makes the same ones in the same order."""
        return bireme.kvstore.create(kind)


def adding(rate=2.0):
    """Return an optimizer that adds ``rate`` times what is pushed."""
    return bireme.OptimizerSpec("sgd", {"lr": 1.0}, rescale_grad=-rate)


def equal(actual, expected):
    """Fail unless every element is exactly the expected one."""
    if not isinstance(expected, torch.Tensor):
        expected = torch.full_like(actual, expected)
    if not torch.equal(actual, expected.to(actual.dtype)):
        raise AssertionError(f"got {actual.flatten()[:8]}, expected {expected.flatten()[:8]}")


def refuses(error, text, call):
    """Fail unless ``call`` raises ``error`` with ``text`` in its message."""
    with pytest.raises(error, match=re.escape(text)):
        call()
