import pytest
import torch

import bireme
from bireme import OptimizerSpec
from bireme.kvstore.tables import TableOptions
from bireme.nn.prefetch import Prefetched

IDS = torch.tensor([1, 2])


@pytest.fixture
def table():
    with bireme.kvstore.create("dist_sync") as store:
        made = store.table(TableOptions("t", 2, init="zeros"))
        made.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
        yield made


@pytest.fixture
def asked(table, monkeypatch):
    """Count the batches that are asked for."""
    batches = []
    begin = table.begin

    def counted(ids, ahead=0):
        batches.append(begin(ids, ahead))
        return batches[-1]

    monkeypatch.setattr(table, "begin", counted)
    return batches


def step(table):
    table.push(IDS[:1], torch.ones(1, 2))


def test_what_was_asked_for_is_given_out_once(table, asked):
    prefetched = Prefetched(table)
    prefetched.ask(IDS, 0)
    prefetched.ask(IDS[:1], 0)
    assert prefetched.take(IDS) is asked[0]
    assert prefetched.take(IDS[:1]) is asked[1]
    assert prefetched.take(IDS) is asked[2]


def test_rows_after_the_step_are_kept_for_after_the_step(table, asked):
    prefetched = Prefetched(table)
    prefetched.ask(IDS, 1)
    assert prefetched.take(IDS) is asked[1]
    step(table)
    batch = prefetched.take(IDS)
    assert batch is asked[0]
    rows = table.wait(batch)[torch.from_numpy(batch.deal.inverse)]
    assert rows[:, 0].tolist() == [-1, 0]


def test_rows_of_an_older_step_or_of_before_a_load_are_not_given_out(table, asked, tmp_path):
    prefetched = Prefetched(table)
    table.save(str(tmp_path))
    prefetched.ask(IDS, 0)
    step(table)
    assert prefetched.take(IDS) is asked[1]
    prefetched.ask(IDS, 0)
    table.load(str(tmp_path))
    batch = prefetched.take(IDS)
    assert batch is asked[3]
    assert not table.wait(batch).any()


def test_what_is_never_fetched_is_forgotten(table, asked):
    prefetched = Prefetched(table)
    for number in range(40):
        prefetched.ask(torch.tensor([number]), 0)
    assert prefetched.take(torch.tensor([39])) is asked[39]
    assert prefetched.take(torch.tensor([0])) is asked[40]
