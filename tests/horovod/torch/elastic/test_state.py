import pytest
import torch

from bireme.horovod.torch.elastic import state as states


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Linear(2, 1)


def train(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def test_everything_is_committed_and_restored(hvd, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = hvd.elastic.ElasticSampler(range(10))
    kept = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=3, losses=[1.0])
    train(model, optimizer)
    kept.epoch, start = 4, model.weight.detach().clone()
    kept.losses.append(2.0)
    sampler.record_batch(0, 2)
    kept.commit()
    for _ in range(2):
        train(model, optimizer)
        kept.epoch = 9
        kept.losses.append(3.0)
        sampler.record_batch(1, 2)
        kept.restore()
        assert torch.equal(model.weight, start)
        assert (kept.epoch, kept.losses, sampler.processed_num) == (4, [1.0, 2.0], 2)
        assert kept.model is model
        assert len(optimizer.state) == 2


def test_what_is_synchronised_is_what_is_restored(hvd, model):
    kept = hvd.elastic.TorchState(model, batch=20)
    with torch.no_grad():
        model.weight.fill_(7.0)
    kept.sync()
    with torch.no_grad():
        model.weight.fill_(9.0)
    kept.restore()
    assert model.weight.tolist() == [[7.0, 7.0]]
    assert kept.batch == 20


def test_another_model_may_take_the_place(hvd, model):
    kept = hvd.elastic.TorchState(model=model)
    other = torch.nn.Linear(2, 1)
    kept.model = other
    before = other.weight.detach().clone()
    with torch.no_grad():
        other.weight.zero_()
    kept.restore()
    assert torch.equal(other.weight, before)


def test_handlers_of_the_users_own(hvd):
    class Counter:
        n = 0

    class CounterHandler(states.StateHandler):
        def save(self):
            self.saved = self.value.n

        def restore(self):
            self.value.n = self.saved

        def sync(self):
            self.value.n = hvd.broadcast_object(self.value.n)

    before = states.get_handler_registry()
    states.set_handler_registry([*before, (Counter, CounterHandler)])
    try:
        counter = Counter()
        kept = hvd.elastic.TorchState(counter=counter)
        kept.save()
        counter.n = 5
        kept.restore()
        assert counter.n == 0
        kept.sync()
    finally:
        states.set_handler_registry(before)
    handler = states.StateHandler(None)
    for method in (handler.save, handler.restore, handler.sync):
        with pytest.raises(NotImplementedError):
            method()
