import numpy as np
import pytest
import torch

import bireme
from bireme.kvstore.tables import TableOptions
from bireme.nn.gradients import Collected, merged
from bireme.node.tables.index import deal


@pytest.fixture
def table():
    with bireme.kvstore.create("dist_sync") as store:
        yield store.table(TableOptions("t", 2))


def looked_up(collected, ids):
    parts = deal(np.array(ids), 1)
    rows = torch.zeros(len(parts.ids), 2)
    collected.watch(rows, parts)
    return rows[torch.from_numpy(parts.inverse)]


def shown(part):
    return {row: each.tolist() for row, each in zip(part[0].ids.tolist(), part[1], strict=True)}


def test_every_backward_pass_counts_once(table):
    collected = Collected(table)
    assert not collected.has_open_step
    out = looked_up(collected, [1, 2, 1])
    assert collected.has_open_step
    out.sum().backward(retain_graph=True)
    out[0].sum().backward()
    looked_up(collected, [3, 1]).sum().backward()
    assert shown(collected.take()) == {1: [4, 4], 2: [1, 1], 3: [1, 1]}
    assert shown(collected.take()) == {}
    assert not collected.has_open_step


def test_a_batch_that_is_dropped_leaves_nothing(table):
    collected = Collected(table)
    looked_up(collected, [1])
    looked_up(collected, [2]).sum().backward()
    collected.clear()
    assert shown(collected.take()) == {}


def test_replicas_are_weighed(table):
    parts = [(deal(np.array([row, 7]), 1), torch.ones(2, 2)) for row in (1, 2)]
    total = merged(table, [(parts[:1], 0.25), (parts[1:], 1.0), ([], 5.0)])
    assert shown(total) == {1: [0.25, 0.25], 2: [1, 1], 7: [1.25, 1.25]}
