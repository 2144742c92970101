"""What leaves when, under update_on_kvstore=True; that the bits are the same is in test_overlap."""

import torch
from tests.integration.jobs import run_threads
from tests.train.overlapping import calls_of, loss_of, net, params_of, train
from torch import nn

import bireme


def test_gradients_leave_during_the_backward_pass_and_weights_come_with_the_forward():
    def work(model, trainer, rank):
        loss_of(model, rank, 0).backward()
        trainer.step()
        calls = calls_of(trainer)
        trainer.synchronize()
        trainer.zero_grad()
        before = model.attend.in_proj_weight.detach().clone()
        loss_of(model, rank, 1).backward()
        during = len(calls)
        trainer.step()
        # All are small, so they wait for each other; step() sends the last bundle.
        assert (during, len(calls)) == (0, 1)
        assert torch.equal(model.attend.in_proj_weight, before), "step() does not wait"
        model.attend(*[torch.zeros(1, 1, 8)] * 3)
        assert not torch.equal(model.attend.in_proj_weight, before)
        return [torch.ones(1)]

    train(work, overlap=True)


def test_large_gradients_leave_alone_as_they_come_and_the_first_layer_is_most_urgent():
    def work(session):
        with session.store("dist_sync") as store:
            model = nn.Sequential(*[nn.Linear(300, 300) for _ in range(4)])
            trainer = bireme.Trainer(model, "sgd", store, overlap=True)
            for _ in range(2):
                calls = calls_of(trainer)
                trainer.zero_grad()
                model(torch.ones(1, 300)).sum().backward()
                left = list(calls)
                trainer.step()
            trainer.close()
            assert [keys for keys, _ in left] == [[f"{i}.weight"] for i in (3, 2, 1, 0)]
            priorities = [priority for _, priority in left]
            assert priorities == sorted(priorities)
            assert max(priorities) < 0, "agreements overtake gradients"
            ((biases, priority),) = calls[4:]
            assert sorted(biases) == [f"{i}.bias" for i in range(4)]
            assert priority == priorities[-1]
            return True

    assert all(run_threads(2, 2, work))


def test_a_hold_sends_everything_with_the_step_the_most_urgent_first():
    def work(session):
        with session.store("dist_sync") as store:
            model = nn.Sequential(*[nn.Linear(300, 300, bias=False) for _ in range(3)])
            trainer = bireme.Trainer(model, "sgd", store, overlap=True)
            calls = calls_of(trainer)
            with trainer.accumulate():
                model(torch.ones(1, 300)).sum().backward()
            assert calls == []
            trainer.step()
            assert [keys for keys, _ in calls] == [[f"{i}.weight"] for i in range(3)]
            trainer.close()
            return True

    assert all(run_threads(2, 2, work))


def test_asynchronous_stores():
    def work(model, trainer, rank):
        for step in range(4):
            trainer.zero_grad()
            loss_of(model, rank, step, branch=bool(step % 2)).backward()
            trainer.step()
        return params_of(model)

    runs = [
        train(work, overlap=overlap, store="dist_async", num_workers=1)[0]
        for overlap in (False, True)
    ]
    assert all(map(torch.equal, *runs))


def test_a_model_that_is_made_of_calls_to_its_parts():
    def work(session, overlap):
        with session.store("dist_sync") as store:
            model = net(3)
            trainer = bireme.Trainer(model, "sgd", store, overlap=overlap)
            for step in range(4):
                trainer.zero_grad()
                tokens = torch.full((2, 2), step + store.rank)
                # Never model(...), and a weight without its module.
                out = nn.functional.linear(model.embed(tokens), model.hidden.weight)
                model.decode(model.back(out)).square().mean().backward()
                trainer.step()
            trainer.close()
            return params_of(model)

    runs = [run_threads(2, 2, lambda s, o=o: work(s, o)) for o in (False, True)]
    for found in (*runs[0], *runs[1]):
        assert all(map(torch.equal, found, runs[0][0]))


def test_sparse_gradients_go_with_the_step():
    def work(session, overlap):
        with session.store("dist_sync") as store:
            torch_seeded = torch.Generator().manual_seed(0)
            model = nn.Sequential(nn.Embedding(20, 6, sparse=True), nn.Linear(6, 6))
            with torch.no_grad():
                for param in model.parameters():
                    param.copy_(torch.rand(param.shape, generator=torch_seeded))
            trainer = bireme.Trainer(model, "sgd", store, overlap=overlap)
            for step in range(4):
                trainer.zero_grad()
                model(torch.tensor([step, store.rank, 5])).square().sum().backward()
                trainer.step()
            trainer.close()
            return params_of(model)

    runs = [run_threads(2, 2, lambda s, o=o: work(s, o)) for o in (False, True)]
    for found in (*runs[0], *runs[1]):
        assert all(map(torch.equal, found, runs[0][0]))
