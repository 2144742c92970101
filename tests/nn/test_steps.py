import pytest
import torch
from tests.integration.jobs import run_threads
from tests.nn.models import NUM_ROWS, STEPS, Net, batch, layer, loss_of, reference
from torch import nn

import bireme
from bireme import OptimizerSpec
from bireme.errors import UnsupportedError
from bireme.nn.steps import TableSteps

MAKERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.3),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=0.3),
}


def train(store, make_optimizer, **options):
    """Train with a trainer; return the first rows, the last ones, and the line."""
    made = layer(store, **options)
    first = made.to_embedding().weight.detach()
    net = Net(made)
    trainer = bireme.Trainer(net, make_optimizer(net.parameters()), kvstore=store)
    for step in range(STEPS):
        ids, label = batch(step, store.rank)
        trainer.zero_grad()
        loss = loss_of(net, ids, label)
        if step % 2:
            made.prefetch(batch(step + 1, store.rank)[0])
        loss.backward()
        trainer.step(num_samples=len(ids))
    return first, made.to_embedding().weight.detach(), net.line.weight.detach()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("num_workers", "num_servers"), [(1, 1), (2, 2), (3, 3), (2, 3)])
def test_it_trains_like_one_process_with_a_plain_embedding(name, num_workers, num_servers):
    def work(session):
        with session.store("dist_sync") as store:
            return train(store, MAKERS[name])

    results = run_threads(num_workers, num_servers, work)
    first = results[0][0]
    expected = reference(first, MAKERS[name], num_workers)
    for before, rows, line in results:
        assert torch.equal(before, first)
        torch.testing.assert_close(rows, expected.embedding.weight, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(line, expected.line.weight, rtol=1e-6, atol=1e-9)
    assert not torch.allclose(first, expected.embedding.weight, atol=1e-3)


@pytest.mark.parametrize("name", MAKERS)
def test_it_trains_like_a_sparse_embedding(name):
    with bireme.kvstore.create("dist_sync") as store:
        first, rows, _ = train(store, MAKERS[name])
    with torch.sparse.check_sparse_tensor_invariants():
        expected = reference(first, MAKERS[name], 1, sparse=True)
    torch.testing.assert_close(rows, expected.embedding.weight, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adadelta", "NAdam", "SGD"])
def test_rows_that_are_all_touched_are_updated_like_a_dense_matrix(name):
    more = {"momentum": 0.9, "weight_decay": 0.1} if name == "SGD" else {}
    make = lambda params: getattr(torch.optim, name)(params, lr=0.05, **more)  # noqa: E731
    everything = torch.arange(NUM_ROWS).view(-1, 3)
    label = torch.linspace(-1, 1, len(everything)).double()[:, None]
    with bireme.kvstore.create("dist_sync") as store:
        made = layer(store)
        net, plain = Net(made), Net(made.to_embedding())
        trainer = bireme.Trainer(net, make(net.parameters()), kvstore=store)
        optimizer = make(plain.parameters())
        for _ in range(10):
            for model, stepper in ((net, trainer), (plain, optimizer)):
                stepper.zero_grad()
                loss_of(model, everything, label).backward()
                stepper.step()
        rows = made.to_embedding().weight
    torch.testing.assert_close(rows, plain.embedding.weight, rtol=1e-6, atol=1e-9)


def test_replicas_are_weighed_by_their_samples():
    def work(session):
        with session.store("dist_sync") as store:
            made = layer(store)
            first = made.to_embedding().weight.detach()
            contexts = [bireme.cpu(0), bireme.cpu(1)]
            module = bireme.Module(
                Net(made),
                loss=nn.functional.mse_loss,
                context=contexts,
                work_load_list=[3, 1],
            )
            batches = [batch(step, 0, low=8) for step in range(STEPS)]
            module.fit(
                batches,
                num_epoch=1,
                eval_metric=None,
                kvstore=store,
                optimizer=MAKERS["sgd"](module.net.parameters()),
            )
            return first, made.to_embedding().weight.detach()

    ((first, rows),) = run_threads(1, 2, work)
    embedding = nn.Embedding(NUM_ROWS, rows.shape[1], dtype=torch.float64)
    embedding.weight.data.copy_(first)
    net = Net(embedding)
    optimizer = MAKERS["sgd"](net.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(net, *batch(step, 0, low=8)).backward()
        optimizer.step()
    torch.testing.assert_close(rows, net.embedding.weight, rtol=1e-6, atol=1e-9)


def test_a_table_follows_the_trainer_s_numbers_or_has_its_own():
    with bireme.kvstore.create("dist_sync") as store:
        mine, own = layer(store), layer(store, name="own", optimizer=OptimizerSpec("adagrad"))
        net = nn.ModuleList([Net(mine), Net(own)])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        trainer = bireme.Trainer(net, optimizer, kvstore=store)
        scheduler = torch.optim.lr_scheduler.StepLR(trainer, 1, 0.1)
        assert (mine.table.optimizer.name, own.table.optimizer.name) == ("SGD", "Adagrad")
        ids, label = batch(0, 0)
        for lr in (0.5, 0.05):
            loss_of(net[0], ids, label).backward()
            trainer.step()
            assert mine.table.optimizer.params["lr"] == pytest.approx(lr)
            scheduler.step()


def test_an_optimizer_that_servers_cannot_run_is_refused():
    with bireme.kvstore.create("dist_sync") as store:
        net = Net(layer(store))
        with pytest.raises(UnsupportedError, match="optimizer of its own"):
            TableSteps([net], torch.optim.LBFGS(net.parameters()))


def test_a_model_without_tables_has_nothing_to_push():
    net = nn.Linear(1, 1)
    steps = TableSteps([net], torch.optim.SGD(net.parameters(), lr=0.1))
    assert not steps
    steps.push([1.0])
    steps.clear()
