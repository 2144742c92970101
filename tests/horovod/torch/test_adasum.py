import pytest
import torch
from tests.horovod.doubles import echo

from bireme.collective import ReduceOp


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 1).double()


@pytest.fixture
def optimizer(hvd, monkeypatch, model):
    echo(monkeypatch)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(inner, model.named_parameters(), op=hvd.Adasum)


def test_the_change_travels_and_not_the_gradient(hvd, optimizer, model):
    engine = hvd.mpi_ops._basics._session.engine
    before = model.weight.detach().clone()
    model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    assert engine.submitted == []
    optimizer.step()
    assert {names[0] for names in engine.submitted} == {"allreduce.weight", "allreduce.bias"}
    assert {op for op, _, _ in engine.ops} == {ReduceOp.ADASUM}
    # The double's Adasum of equal vectors is the vector.
    torch.testing.assert_close(model.weight.detach(), before - 0.1)
    optimizer.zero_grad()
    assert model.weight.grad is None


def test_a_closures_loss_comes_back(optimizer, model):
    def closure():
        loss = model(torch.ones(1, 3, dtype=torch.float64)).sum()
        loss.backward()
        return loss

    assert isinstance(optimizer.step(closure), torch.Tensor)


def test_there_is_no_way_around_the_sum(optimizer):
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(2)
    with pytest.raises(AssertionError, match="not supported when using Adasum"):
        optimizer.skip_synchronize()
