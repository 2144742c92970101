import copy
import gc
import pickle
import weakref

import pytest
import torch
from tests.integration.jobs import run_threads
from tests.nn.models import DIM, NUM_ROWS, Net, batch, layer, loss_of

import bireme
from bireme import OptimizerSpec
from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.nn import ShardedEmbedding

SGD = OptimizerSpec("sgd", {"lr": 1.0})


@pytest.fixture
def store():
    with bireme.kvstore.create("dist_sync") as made:
        yield made


def test_it_looks_up_like_the_embedding_that_it_exports(store):
    made = layer(store)
    plain = made.to_embedding()
    for shape in ((), (3,), (2, 3), (2, 0), (1, 2, 3)):
        ids = torch.randint(0, NUM_ROWS, shape)
        assert made(ids).shape == (*shape, DIM)
        assert torch.equal(made(ids), plain(ids))
        assert torch.equal(made(ids.to(torch.int32)), plain(ids))
    assert (plain.weight.shape, plain.weight.requires_grad) == ((NUM_ROWS, DIM), True)


def test_gradients_are_those_of_the_embedding(store):
    made = layer(store, optimizer=SGD)
    plain = made.to_embedding()
    ids = torch.tensor([[3, 3], [4, 3]])
    for module in (made, plain):
        for factor in (1.0, 2.0):
            (factor * module(ids) ** 3).sum().backward()
    made.step()
    after = plain.weight.detach() - plain.weight.grad
    assert torch.allclose(made.to_embedding().weight, after, rtol=1e-12)


def test_padding_is_zeros_and_is_never_updated(store):
    made = layer(store, padding_idx=-1, optimizer=SGD)
    plain = made.to_embedding()
    assert (made.padding_idx, plain.padding_idx) == (NUM_ROWS - 1, NUM_ROWS - 1)
    ids = torch.tensor([[1, NUM_ROWS - 1], [NUM_ROWS - 1, NUM_ROWS - 1]])
    for module in (made, plain):
        out = module(ids)
        assert not out[1].any()
        out.sum().backward()
    made.step()
    assert torch.allclose(made.to_embedding().weight, plain.weight - plain.weight.grad)
    assert made.stats()["rows"] == 1


def test_hashed_ids_have_rows_too(store):
    made = ShardedEmbedding(None, 2, kvstore=store, optimizer=SGD)
    ids = torch.tensor([-(2**63), 2**63 - 1, 0])
    before = made(ids)
    before.sum().backward()
    made.step()
    assert torch.allclose(made(ids), before - 1)
    with pytest.raises(ConfigError, match="how many"):
        made.to_embedding()
    assert torch.equal(made.to_embedding(1).weight[0], made(ids)[2])


def test_what_was_looked_up_without_a_backward_pass_leaves_nothing(store):
    made = layer(store, optimizer=SGD)
    out = made(torch.tensor([1]))
    watched = weakref.ref(out)
    del out
    gc.collect()
    assert watched() is None
    with torch.no_grad():
        assert not made(torch.tensor([1])).requires_grad
    made.step()
    made.table.flush()
    assert made.stats()["rows"] == 0


def test_forgotten_gradients_are_not_pushed(store):
    made = layer(store, optimizer=SGD)
    made(torch.tensor([1])).sum().backward()
    made.zero_grad()
    made.step()
    made.table.flush()
    assert made.stats()["rows"] == 0


def test_wrong_arguments_are_named(store):
    made = layer(store)
    for ids, text in (
        (torch.tensor([1.0]), "float32"),
        (torch.tensor([True]), "bool"),
        ([1, 2], "list"),
        (torch.tensor([NUM_ROWS]), "rows 0 to"),
        (torch.empty(2, dtype=torch.int64, device="meta"), "meta"),
    ):
        with pytest.raises(ConfigError, match=text):
            made(ids)
        with pytest.raises(ConfigError, match=text):
            made.prefetch(ids)
    with pytest.raises(StateError, match="no optimizer"):
        made.step()
    made.set_optimizer(SGD)
    for count in (-1, float("nan")):
        with pytest.raises(ConfigError, match="num_samples"):
            made.step(count)
    for options, text in (
        ({"padding_idx": NUM_ROWS}, "padding_idx"),
        ({"padding_idx": "x"}, "padding_idx"),
        ({"optimizer": torch.optim.SGD}, "OptimizerSpec"),
        ({"name": "rows"}, "already"),
        ({"dtype": torch.float16}, "float16"),
    ):
        with pytest.raises(ConfigError, match=text):
            layer(store, **{"name": "other", **options})
    with pytest.raises(UnsupportedError, match="'dist_sync'"):
        ShardedEmbedding(3, 2, kvstore="local")
    with pytest.raises(UnsupportedError, match="store of its own"):
        ShardedEmbedding(3, 2, kvstore="dist_local")


def test_it_makes_and_closes_a_store_of_its_own():
    made = ShardedEmbedding(5, 2)
    assert made(torch.tensor([1])).shape == (1, 2)
    assert made.kvstore.type == "dist_sync"
    made.close()
    made.close()
    with pytest.raises(StateError, match="closed"):
        made(torch.tensor([1]))


def test_copies_share_the_table_and_collect_for_themselves(store):
    made = layer(store, optimizer=SGD)
    net = Net(made)
    twin = copy.deepcopy(net)
    assert twin.embedding.table is made.table
    twin.embedding(torch.tensor([1])).sum().backward()
    made.step()
    made.table.flush()
    assert made.stats()["rows"] == 0
    twin.embedding.step()
    made.table.flush()
    assert made.stats()["rows"] == 1
    with pytest.raises(UnsupportedError, match="save"):
        pickle.dumps(made)
    assert not list(made.parameters())
    assert "name='rows'" in repr(made)


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_prefetched_rows_are_those_that_would_come_without(kind):
    def work(session):
        found = []
        with session.store(kind) as store:
            made = layer(store, optimizer=SGD)
            net = Net(made)
            for step in range(5):
                ids, label = batch(step, store.rank)
                loss = loss_of(net, ids, label)
                made.prefetch(batch(step + 1, store.rank)[0])
                loss.backward()
                made.step()
                if kind == "dist_async":
                    store.barrier()
                    made.table.flush()
                    store.barrier()
                fresh = made.table.pull(batch(step + 1, store.rank)[0])
                sent = made.table.num_steps
                came = made(batch(step + 1, store.rank)[0])
                assert made.table.num_steps == sent
                found.append(torch.equal(came, fresh))
        return found

    for found in run_threads(2, 2, work):
        # Without rounds a prefetched row may lack what others have pushed since.
        assert all(found) or kind == "dist_async"


def test_saved_and_loaded(store, tmp_path):
    made = layer(store, optimizer=SGD)
    made(torch.tensor([1, 2])).sum().backward()
    made.step()
    made.save(str(tmp_path))
    saved = made.to_embedding().weight
    made.prefetch(torch.tensor([1]))
    made(torch.tensor([1])).sum().backward()
    made.step()
    made.load(str(tmp_path))
    assert torch.equal(made.to_embedding().weight, saved)
    assert torch.equal(made(torch.tensor([1]))[0], saved[1])
