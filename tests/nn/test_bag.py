import pytest
import torch
from torch import nn

import bireme
from bireme import OptimizerSpec
from bireme.errors import ConfigError
from bireme.nn import ShardedEmbeddingBag


@pytest.fixture
def store():
    with bireme.kvstore.create("dist_sync") as made:
        yield made


def pair(store, mode, padding_idx=None):
    """A bag on servers, and torch's with the same rows."""
    made = ShardedEmbeddingBag(
        9,
        3,
        mode,
        padding_idx,
        kvstore=store,
        name=f"{mode}{padding_idx}",
        dtype=torch.float64,
        optimizer=OptimizerSpec("sgd", {"lr": 1.0}),
    )
    weight = made.to_embedding().weight.detach()
    plain = nn.EmbeddingBag.from_pretrained(
        weight.clone(), mode=mode, freeze=False, padding_idx=padding_idx
    )
    return made, plain


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding_idx", [None, 4])
def test_bags_are_those_of_torch(store, mode, padding_idx):
    made, plain = pair(store, mode, padding_idx)
    ids, offsets = torch.tensor([1, 4, 4, 8, 1]), torch.tensor([0, 3, 3])
    for arguments in ((ids, offsets), (ids[:4].view(2, 2), None)):
        mine, theirs = made(*arguments), plain(*arguments)
        assert torch.allclose(mine, theirs)
        for out in (mine, theirs):
            (out**2).sum().backward()
    made.step()
    after = plain.weight - plain.weight.grad
    assert torch.allclose(made.to_embedding().weight, after)


def test_weights_of_samples(store):
    made, plain = pair(store, "sum")
    ids, weights = torch.tensor([[1, 2], [2, 2]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double()
    assert torch.allclose(
        made(ids, per_sample_weights=weights), plain(ids, per_sample_weights=weights)
    )


def test_wrong_arguments(store):
    made, _ = pair(store, "mean")
    ids = torch.tensor([1, 2])
    for arguments in ((ids,), (ids[None], torch.tensor([0])), (ids, None, ids.double())):
        with pytest.raises(ConfigError, match="offsets"):
            made(*arguments)
    with pytest.raises(ConfigError, match="bags"):
        made(ids, torch.tensor([0]), torch.ones(2).double())
    with pytest.raises(ConfigError, match="mode"):
        ShardedEmbeddingBag(3, 2, "max", kvstore=store)
