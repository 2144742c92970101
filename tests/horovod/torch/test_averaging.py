import gc
import weakref

import pytest
import torch
from tests.horovod.doubles import echo

from bireme.collective import ReduceOp

NAMES = ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).double()


@pytest.fixture
def engine(hvd, monkeypatch):
    return echo(monkeypatch)


def sgd(hvd, model, lr=0.1, **given):
    given.setdefault("named_parameters", model.named_parameters())
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), **given)


def backward(model, scale=1.0):
    (model(torch.ones(2, 3, dtype=torch.float64)).sum() * scale).backward()


def grads(model):
    return [param.grad.clone() for param in model.parameters()]


def test_gradients_leave_during_the_backward_pass_and_step_waits(hvd, engine, model):
    optimizer = sgd(hvd, model)
    backward(model)
    assert {names[0] for names in engine.submitted} == {f"allreduce.{name}" for name in NAMES}
    own, before = grads(model), [param.detach().clone() for param in model.parameters()]
    optimizer.step()
    for param, start, grad in zip(model.parameters(), before, own, strict=True):
        torch.testing.assert_close(param.grad, grad * 2)
        torch.testing.assert_close(param.detach(), start - 0.1 * 2 * grad)


def test_nothing_is_sent_by_a_single_process(hvd, model):
    optimizer = sgd(hvd, model)
    backward(model)
    assert not optimizer._handles
    optimizer.step()


def test_passes_add_up_before_they_are_reduced(hvd, engine, model):
    optimizer = sgd(hvd, model, backward_passes_per_step=3, op=hvd.Sum)
    backward(model)
    backward(model)
    assert engine.submitted == []
    backward(model)
    assert len(engine.submitted) == 4
    own = grads(model)
    optimizer.synchronize()
    for param, grad in zip(model.parameters(), own, strict=True):
        torch.testing.assert_close(param.grad, grad * 4)


def test_a_step_before_the_last_pass_reduces_what_there_is(hvd, engine, model):
    optimizer = sgd(hvd, model, backward_passes_per_step=3)
    backward(model)
    optimizer.step()
    assert len(engine.submitted) == 4
    optimizer.zero_grad()
    for _ in range(3):
        backward(model)
    optimizer.step()
    assert len(engine.submitted) == 8


def test_one_pass_too_many_is_an_error(hvd, engine, model):
    optimizer = sgd(hvd, model)
    backward(model)
    with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
        backward(model)
    optimizer.step()
    optimizer.set_backward_passes_per_step(2)
    backward(model)
    backward(model)
    optimizer.step()
    with pytest.raises(ValueError, match="must be > 0"):
        optimizer.set_backward_passes_per_step(0)


def test_parameters_without_a_gradient_send_zeros(hvd, engine, model):
    optimizer = sgd(hvd, model)
    model[0](torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    assert len(engine.submitted) == 2
    optimizer.step()
    assert len(engine.submitted) == 4
    assert torch.equal(model[1].weight.grad, torch.zeros(1, 2, dtype=torch.float64))


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compressed_gradients_come_back_in_their_own_type(hvd, engine, model, compression):
    optimizer = sgd(hvd, model, compression=getattr(hvd.Compression, compression))
    backward(model)
    own = grads(model)
    optimizer.synchronize()
    for param, grad in zip(model.parameters(), own, strict=True):
        assert param.grad.dtype is torch.float64
        torch.testing.assert_close(param.grad, grad * 2, rtol=1e-2, atol=1e-2)


def test_predividing_splits_the_mean(hvd, engine, model):
    optimizer = sgd(hvd, model, gradient_predivide_factor=4.0)
    backward(model)
    assert set(engine.ops) == {(ReduceOp.AVERAGE, 0.25, 4.0)}
    optimizer.step()


def test_groups_leave_together_with_predivision(hvd, engine, model):
    optimizer = sgd(hvd, model, groups=2, gradient_predivide_factor=4.0)
    backward(model)
    first = tuple(f"grouped_allreduce.0.weight_{i}of2" for i in range(2))
    second = tuple(f"grouped_allreduce.1.weight_{i}of2" for i in range(2))
    assert engine.submitted == [second, first]
    assert set(engine.ops) == {(ReduceOp.AVERAGE, 0.25, 4.0)}
    own = grads(model)
    optimizer.step()
    torch.testing.assert_close(model[1].weight.grad, own[2] * 2)


def test_a_group_waits_for_its_last_member_and_for_the_step(hvd, engine, model):
    whole = [list(model.parameters())]
    optimizer = sgd(hvd, model, groups=whole, named_parameters=None)
    model[0](torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    assert engine.submitted == []
    optimizer.step()
    assert len(engine.submitted) == 1
    assert len(engine.submitted[0]) == 4


@pytest.mark.parametrize("as_dense", [True, False])
@pytest.mark.parametrize("groups", [None, 1])
def test_sparse_gradients_stay_sparse(hvd, engine, as_dense, groups):
    model = torch.nn.Sequential(torch.nn.Embedding(5, 2, sparse=True), torch.nn.Linear(2, 1))
    optimizer = sgd(hvd, model, sparse_as_dense=as_dense, groups=groups)
    model(torch.tensor([1, 1, 3])).sum().backward()
    own = model[0].weight.grad.to_dense()
    optimizer.step()
    grad = model[0].weight.grad
    assert grad.is_sparse
    assert grad.sparse_dim() == 1
    # The double gathers what this process has, once.
    torch.testing.assert_close(grad.to_dense(), own * (2 if as_dense else 0.5))
    model[0].weight.grad = None
    optimizer.synchronize()
    assert model[0].weight.grad.is_sparse


def test_manual_synchronisation_is_not_repeated(hvd, engine, model, recwarn):
    optimizer = sgd(hvd, model)
    backward(model)
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    clipped = grads(model)
    with optimizer.skip_synchronize():
        optimizer.step()
    assert len(engine.submitted) == 4
    assert all(map(torch.equal, clipped, grads(model)))
    assert not recwarn.list
    backward(model)
    optimizer.synchronize()
    with pytest.warns(UserWarning, match=r"without optimizer.skip_synchronize\(\)"):
        optimizer.step()
    optimizer.step()


def test_clearing_gradients_that_are_under_way_is_an_error(hvd, engine, model):
    optimizer = sgd(hvd, model)
    backward(model)
    with pytest.raises(AssertionError, match="race condition"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(torch.count_nonzero(grad) == 0 for grad in grads(model))
    optimizer.zero_grad(set_to_none=True)
    assert all(param.grad is None for param in model.parameters())


def test_added_groups_are_reduced_too(hvd, engine, model):
    optimizer = sgd(hvd, model)
    more = torch.nn.Linear(1, 1).double()
    optimizer.add_param_group({"params": more.parameters(), "lr": 0.0})
    more(model(torch.ones(1, 3, dtype=torch.float64))).sum().backward()
    own = more.weight.grad.clone()
    optimizer.step()
    assert ("allreduce.allreduce.noname.1.0",) in engine.submitted
    torch.testing.assert_close(more.weight.grad, own * 2)


def test_thawed_parameters_are_reduced_too(hvd, engine, model):
    model[0].requires_grad_(False)
    optimizer = sgd(hvd, model)
    backward(model)
    assert len(engine.submitted) == 2
    optimizer.step()
    optimizer.zero_grad()
    model[0].requires_grad_(True)
    for _ in range(2):
        backward(model)
        own = model[0].weight.grad.clone()
        optimizer.step()
        torch.testing.assert_close(model[0].weight.grad, own * 2)
        optimizer.zero_grad()


def test_closures_see_averaged_gradients_and_the_mean_loss(hvd, engine, model):
    optimizer = sgd(hvd, model)
    seen = []

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3, dtype=torch.float64)).pow(2).mean()
        loss.backward()
        seen.append((loss.item(), model[0].weight.grad.clone()))
        return loss

    loss = optimizer.step(closure)
    torch.testing.assert_close(loss.item(), seen[0][0] * 2)
    torch.testing.assert_close(model[0].weight.grad, seen[0][1] * 2)
    assert optimizer.step(lambda: 0.5) == 1.0
    assert optimizer.step(lambda: None) is None


def test_hooks_go_with_their_optimizer(hvd, engine, model):
    optimizer = sgd(hvd, model)
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None
    backward(model)
    assert engine.submitted == []


def test_a_second_optimizer_takes_over(hvd, engine, model):
    first = sgd(hvd, model, groups=1)
    second = sgd(hvd, model)
    backward(model)
    assert len(engine.submitted) == 4
    second.step()
    first.step()
    assert len(engine.submitted) == 4


def test_two_optimizers_with_parameters_of_their_own(hvd, engine, model):
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(part.parameters(), lr=0.1),
            named_parameters=part.named_parameters(prefix=str(number)),
        )
        for number, part in enumerate(model)
    ]
    backward(model)
    assert len(engine.submitted) == 4
    for optimizer in optimizers:
        optimizer.step()
    assert len(engine.submitted) == 4


def test_loading_a_state_forgets_what_is_under_way(hvd, engine, model):
    optimizer = sgd(hvd, model)
    backward(model)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert optimizer._inner.param_groups is optimizer.param_groups


def test_a_failed_reduction_leaves_nothing_behind(hvd, engine, model, monkeypatch):
    from bireme.errors import MismatchError

    optimizer = sgd(hvd, model)
    backward(model)
    real = type(hvd.mpi_ops._handle_map[min(hvd.mpi_ops._handle_map)][0]).wait
    calls = []

    def failing(handle, timeout_s=None):
        calls.append(handle)
        if len(calls) == 1:
            raise MismatchError("shapes differ")
        return real(handle, timeout_s)

    monkeypatch.setattr("bireme.collective.Handle.wait", failing)
    with pytest.raises(hvd.HorovodInternalError, match="shapes differ"):
        optimizer.step()
    assert len(calls) == 4
    assert not optimizer._handles
    assert not hvd.mpi_ops._handle_map
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
