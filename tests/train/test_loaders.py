import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from bireme.data import BalancedBatchSampler, ShardSampler
from bireme.errors import ConfigError
from bireme.train.loaders import Portions, balanced_loader, sampler_of

DATA = TensorDataset(torch.arange(20))


def test_portions_of_each_batch():
    loaders = [balanced_loader(DataLoader(DATA, 8), [3, 1], 2, rank) for rank in range(2)]
    found = [[batch[0].tolist() for batch in loader] for loader in loaders]
    assert found == [
        [[0, 1, 2, 3, 4, 5], [8, 9, 10, 11, 12, 13], [16, 17, 18]],
        [[6, 7], [14, 15], [19]],
    ]
    assert len(loaders[0]) == 3


def test_what_the_loader_says_is_kept():
    def collate(batch):
        return len(batch)

    loader = DataLoader(
        DATA, 8, shuffle=True, drop_last=True, collate_fn=collate, num_workers=2, prefetch_factor=3
    )
    made = balanced_loader(loader, "auto", 2, 1)
    assert (made.collate_fn, made.num_workers, made.prefetch_factor) == (collate, 2, 3)
    sampler = sampler_of(made)
    assert len(made) == 2
    # Portions must be agreed on before the loader's processes ask for them.
    handed = iter(sampler)
    assert [len(next(handed)) for _ in range(2)] == [4, 4]
    assert list(handed) == []
    assert sampler.state_dict()["shuffle"] is True


def test_workers_of_a_loader_ask_ahead():
    sampler = BalancedBatchSampler(20, 4, lookahead=2)
    sampler.connect()
    loader = DataLoader(DATA, batch_sampler=sampler, num_workers=1, prefetch_factor=2)
    found = []
    for (batch,) in loader:
        found += batch.tolist()
        sampler.skip()
    assert sorted(found) == list(range(20))


@pytest.mark.parametrize(
    ("loader", "text"),
    [
        ([1, 2], "DataLoader over the whole data set"),
        (DataLoader(DATA, batch_sampler=BalancedBatchSampler(20, 4)), "leave it out"),
        (DataLoader(DATA, 8, sampler=ShardSampler(20, 2, 0)), "has ShardSampler"),
        (DataLoader(DATA, batch_size=None), "DataLoader with batch_size"),
        (DataLoader(DATA, 8, sampler=RandomSampler(DATA, replacement=True)), "RandomSampler"),
        (DataLoader(DATA, 8, sampler=RandomSampler(DATA, num_samples=5)), "RandomSampler"),
    ],
)
def test_other_loaders(loader, text):
    with pytest.raises(ConfigError, match=text):
        balanced_loader(loader, "auto", 2, 0)


def test_only_balanced_samplers_are_found():
    assert sampler_of(DataLoader(DATA, 8)) is None
    assert sampler_of([1, 2]) is None


def test_portions_go_on_where_they_were():
    portions, loader = Portions(), DataLoader(DATA, 8)
    first, sampler = portions.of(loader, [1], None)
    assert sampler_of(first) is sampler
    assert portions.of(loader, [1], None) == (first, sampler)
    other, _ = portions.of(loader, "auto", None)
    assert other is not first


def test_portions_are_those_of_the_stores_workers():
    class Second:
        num_workers = 2
        rank = 1

    mine, sampler = Portions().of(DataLoader(DATA, 8), [3, 1], Second())
    assert [batch[0].tolist() for batch in mine] == [[6, 7], [14, 15], [19]]
    assert (sampler.part_index, sampler.num_parts) == (1, 2)


def test_without_a_list_a_loader_is_taken_as_it_is():
    portions, loader = Portions(), DataLoader(DATA, 8)
    assert portions.of(loader, None, None) == (loader, None)
    sampler = BalancedBatchSampler(20, 4)
    dealt = DataLoader(DATA, batch_sampler=sampler)
    assert portions.of(dealt, None, None) == (dealt, sampler)
