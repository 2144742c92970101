"""What leaves when, under update_on_kvstore=False; the bits are compared in test_overlap."""

import pytest
import torch
from tests.integration.jobs import run_threads
from tests.train.overlapping import assert_same, calls_of, loss_of, net, params_of, train
from torch import nn

import bireme
from bireme.errors import StateError


def test_sums_are_in_the_gradients_after_the_step():
    def work(model, trainer, rank):
        loss_of(model, rank, 0).backward()
        trainer.step()
        return [param.grad.clone() for param in model.parameters() if param.grad is not None]

    assert_same(work, update_on_kvstore=False)


def test_gradients_leave_during_the_backward_pass():
    def work(session):
        with session.store("dist_sync") as store:
            model = nn.Sequential(*[nn.Linear(300, 300) for _ in range(3)])
            trainer = bireme.Trainer(model, "sgd", store, update_on_kvstore=False, overlap=True)
            calls = calls_of(trainer)
            model(torch.ones(1, 300)).sum().backward()
            assert [keys for keys, _ in calls] == [[f"{i}.weight"] for i in (2, 1, 0)]
            trainer.step()
            trainer.close()
            return True

    assert all(run_threads(2, 2, work))


def test_an_optimizer_that_only_runs_here():
    def work(model, trainer, rank):
        for step in range(2):

            def closure(step=step):
                trainer.zero_grad()
                loss = loss_of(model, rank, step)
                loss.backward()
                return loss

            trainer.step(closure)
        return params_of(model)

    def works(**options):
        def worker(session):
            with session.store("dist_sync") as store:
                model = net()
                optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
                trainer = bireme.Trainer(model, optimizer, store, **options)
                try:
                    return work(model, trainer, store.rank)
                finally:
                    trainer.close()

        return run_threads(2, 1, worker)

    off, on = works(overlap=False), works(overlap=True)
    for found in (*off, *on):
        assert all(map(torch.equal, found, off[0]))


def test_gradients_that_have_left_cannot_be_taken_as_they_are():
    def work(model, trainer, rank):
        loss_of(model, rank, 0).backward()
        with pytest.raises(StateError, match="as they are"):
            trainer.update()
        trainer.step()
        return [torch.ones(1)]

    assert train(work, overlap=True, update_on_kvstore=False)
