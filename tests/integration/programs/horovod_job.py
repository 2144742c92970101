"""What every rank checks of ``bireme.horovod.torch``: operations, errors, and equal training."""

import pytest
import torch
from tests.integration.programs.hvd_checks import Checks
from torch import nn

import bireme.horovod.torch as hvd

check = Checks()


def mine():
    return torch.arange(6, dtype=torch.float64).view(2, 3) + hvd.rank()


def raises(kind, call, *words):
    with pytest.raises(kind) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


@check
def sums_and_means():
    size, ranks = hvd.size(), range(hvd.size())
    base = torch.arange(6, dtype=torch.float64).view(2, 3)
    each = torch.stack([base + rank for rank in ranks])
    for op, expected in (
        (hvd.Sum, each.sum(0)),
        (hvd.Average, each.mean(0)),
        (hvd.Min, each.amin(0)),
        (hvd.Max, each.amax(0)),
        (hvd.Product, each.prod(0)),
    ):
        torch.testing.assert_close(hvd.allreduce(mine(), op=op), expected)
    scaled = hvd.allreduce(mine(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    torch.testing.assert_close(scaled, each.sum(0) * 2)
    for dtype in (torch.bfloat16, torch.float16, torch.int16, torch.uint8, torch.complex64):
        tensor = torch.ones(3, dtype=dtype) * (hvd.rank() + 1)
        total = size * (size + 1) // 2
        assert hvd.allreduce(tensor, op=hvd.Sum).tolist() == [total] * 3
    flags = torch.tensor([hvd.rank() == 0, False, True])
    assert hvd.allreduce(flags, op=hvd.Sum).tolist() == [True, False, True]
    odd = torch.full((3,), 1 + 2 * hvd.rank())
    assert hvd.allreduce(odd).tolist() == [sum(1 + 2 * r for r in ranks) // size] * 3


@check
def order_of_submission_does_not_matter():
    names = [f"n{number}" for number in range(20)]
    order = names if hvd.rank() % 2 else names[::-1]
    numbers = {
        name: hvd.allreduce_async_(torch.full((100,), float(name[1:])), name=name, op=hvd.Sum)
        for name in order
    }
    for name, number in numbers.items():
        assert hvd.synchronize(number)[0] == float(name[1:]) * hvd.size()


@check
def ragged_gathering_and_its_gradient():
    rank, size = hvd.rank(), hvd.size()
    tensor = torch.full((rank, 2), float(rank), requires_grad=True)
    result = hvd.allgather(tensor)
    assert result[:, 0].tolist() == [float(r) for r in range(size) for _ in range(r)]
    (result * (rank + 1)).sum().backward()
    mean = sum(range(1, size + 1)) / size
    torch.testing.assert_close(tensor.grad, torch.full((rank, 2), mean))


@check
def scattering_and_exchange():
    rank, size = hvd.rank(), hvd.size()
    rows = torch.arange(size + 1.0) + rank
    part = hvd.reducescatter(rows, op=hvd.Sum)
    whole = sum(torch.arange(size + 1.0) + r for r in range(size))
    torch.testing.assert_close(part, whole[:2] if rank == 0 else whole[rank + 1 : rank + 2])
    splits = torch.arange(size, dtype=torch.int32)
    sent = torch.full((int(splits.sum()),), float(rank))
    output, received = hvd.alltoall(sent, splits)
    assert received.tolist() == [rank] * size
    assert output.tolist() == [float(r) for r in range(size) for _ in range(rank)]
    raises(ValueError, lambda: hvd.alltoall(torch.ones(size + 1)), "splits")


@check
def broadcasts():
    rank = hvd.rank()
    for root in range(hvd.size()):
        assert hvd.broadcast(torch.full((3,), rank), root).tolist() == [root] * 3
        assert hvd.broadcast_object({"root": rank} if rank == root else None, root) == {
            "root": root
        }
    assert hvd.allgather_object("x" * rank) == ["x" * r for r in range(hvd.size())]
    parameter = torch.nn.Parameter(torch.full((2,), float(rank)))
    hvd.broadcast_parameters({"a": parameter}, root_rank=1)
    assert parameter.tolist() == [1.0, 1.0]


@check
def disagreements_are_the_same_error_everywhere_and_the_next_operation_works():
    rank = hvd.rank()
    error = (hvd.HorovodInternalError,)
    raises(error, lambda: hvd.allreduce(torch.ones(2 + rank), name="shape"), "shape")
    dtype = (torch.float32, torch.int32)[rank % 2]
    raises(error, lambda: hvd.allreduce(torch.ones(2, dtype=dtype), name="type"), "type")
    raises(error, lambda: hvd.broadcast(torch.ones(2), rank, name="root"), "root")
    raises(error, lambda: hvd.allreduce(torch.ones(2), op=[hvd.Sum, hvd.Max][rank % 2], name="op"))
    raises(error, lambda: hvd.allreduce(torch.ones(2), prescale_factor=1.0 + rank, name="scale"))
    raises(error, lambda: hvd.allgather(torch.tensor(1.0), name="scalar"))
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()


@check
def process_sets():
    size, rank = hvd.size(), hvd.rank()
    others = hvd.add_process_set(range(1, size))
    raises(ValueError, lambda: hvd.add_process_set(range(1, size)), "already")
    if rank:
        assert (others.rank(), others.size(), others.included()) == (rank - 1, size - 1, True)
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=others) == size - 1
        assert hvd.broadcast(torch.tensor(rank), 1, process_set=others) == 1
        assert hvd.broadcast_object(rank, 1, process_set=others) == 1
    else:
        raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=others), "not a member")
    # Unnamed operations still agree: those of the set count for themselves.
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size
    assert hvd.remove_process_set(others)
    assert not hvd.remove_process_set(others)


@check
def uneven_data_by_join():
    rank, size = hvd.rank(), hvd.size()
    for step in range(rank + 1):
        result = hvd.allreduce(torch.ones(1), name=f"step{step}")
        torch.testing.assert_close(result, torch.tensor([(size - step) / size]))
    last = hvd.join()
    assert hvd.allgather_object(last) == [size - 1] * size
    # Ranks have made different numbers of unnamed calls, which are counted anew.
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == size


@check
def adasum_on_any_number_of_ranks():
    same = hvd.allreduce(torch.tensor([3.0, 4.0]), op=hvd.Adasum)
    torch.testing.assert_close(same, torch.tensor([3.0, 4.0]))
    apart = torch.zeros(hvd.size())
    apart[hvd.rank()] = 2.0
    torch.testing.assert_close(hvd.allreduce(apart, op=hvd.Adasum), torch.full((hvd.size(),), 2.0))


@check
def sparse_sums():
    rank, size = hvd.rank(), hvd.size()
    dense = torch.zeros(size + 1, 2)
    dense[rank] = rank + 1.0
    dense[size] = 1.0
    result = hvd.sparse_allreduce_async(dense.to_sparse(1), name="sparse", op=hvd.Average)()
    expected = hvd.allreduce(dense)
    torch.testing.assert_close(result.to_dense(), expected)


# Training: on any split of the batch the parameters are those of one process.

N = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.spare = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)
        self.double()

    def forward(self, x, use_spare=False):
        hidden = torch.tanh(self.first(x))
        return self.second(hidden) + (self.spare(hidden) if use_spare else 0.0)


def data(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(N, 4, generator=generator, dtype=torch.float64)


def portion():
    """Return this rank's slice of a batch: the first rank has most."""
    size, rank = hvd.size(), hvd.rank()
    first = N - 2 * (size - 1)
    return slice(0, first) if rank == 0 else slice(first + 2 * (rank - 1), first + 2 * rank)


def train(optimizer, model, step_once, steps=4):
    for step in range(steps):
        optimizer.zero_grad()
        step_once(step)
    return [param.detach().clone() for param in model.parameters()]


def reference(make=None, spare_rows=()):
    model = Net()
    optimizer = (make or sgd)(model)

    def step_once(step):
        x = data(step)
        uses = torch.zeros(N, 1, dtype=torch.float64)
        uses[list(spare_rows)] = 1.0
        hidden = torch.tanh(model.first(x))
        (model.second(hidden) + uses * model.spare(hidden)).pow(2).sum().div(N).backward()
        optimizer.step()

    return train(optimizer, model, step_once)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def agree(ours, theirs, **tolerance):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **(tolerance or {"rtol": 1e-9, "atol": 1e-9}))


def distributed(make=sgd, model=None, scale=1.0, **options):
    model = model or Net()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    named = options.pop("named_parameters", list(model.named_parameters()))
    optimizer = hvd.DistributedOptimizer(make(model), named_parameters=named, **options)

    def step_once(step):
        model(data(step)[portion()]).pow(2).sum().mul(scale / N).backward()
        optimizer.step()

    return train(optimizer, model, step_once)


@check
def training_equals_that_of_one_process():
    expected, size = reference(), hvd.size()
    model = Net()
    whole = [list(model.parameters())[:3], list(model.parameters())[3:]]
    agree(distributed(op=hvd.Sum), expected)
    agree(distributed(scale=size), expected)
    agree(distributed(scale=size, gradient_predivide_factor=4.0), expected)
    agree(distributed(op=hvd.Sum, groups=2), expected)
    agree(distributed(op=hvd.Sum, groups=whole, model=model), expected)
    agree(distributed(scale=size, groups=1, gradient_predivide_factor=2.0), expected)
    agree(distributed(op=hvd.Sum, named_parameters=None), expected)
    adam = lambda model: torch.optim.AdamW(model.parameters(), lr=0.01)  # noqa: E731
    agree(distributed(adam, op=hvd.Sum), reference(adam))
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        agree(distributed(op=hvd.Sum, compression=compression), expected, rtol=0.02, atol=0.02)


@check
def passes_add_up():
    model = Net()
    optimizer = hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), backward_passes_per_step=2, op=hvd.Sum
    )

    def step_once(step):
        for part in data(step)[portion()].tensor_split(2):
            model(part).pow(2).sum().div(N).backward()
        optimizer.step()

    agree(train(optimizer, model, step_once), reference())


@check
def graphs_may_differ_between_ranks_and_steps():
    model = Net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Sum)

    def step_once(step):
        model(data(step)[portion()], use_spare=hvd.rank() == 1).pow(2).sum().div(N).backward()
        optimizer.step()

    rows = range(N)[portion()] if hvd.rank() == 1 else ()
    rows = next(rows for rows in hvd.allgather_object(list(rows)) if rows)
    agree(train(optimizer, model, step_once), reference(spare_rows=rows))


@check
def closures_and_scalers_and_compiled_models():
    model, expected = Net(), reference()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Sum)

    def closure_step(step):
        def closure():
            optimizer.zero_grad()
            loss = model(data(step)[portion()]).pow(2).sum().div(N)
            loss.backward()
            return loss

        optimizer.step(closure)

    agree(train(optimizer, model, closure_step), expected)

    model = Net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Sum)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def scaled_step(step):
        scaler.scale(model(data(step)[portion()]).pow(2).sum().div(N)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()

    agree(train(optimizer, model, scaled_step), expected)

    model = Net()
    compiled = torch.compile(model, backend="eager")
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Sum)

    def compiled_step(step):
        compiled(data(step)[portion()]).pow(2).sum().div(N).backward()
        optimizer.step()

    agree(train(optimizer, model, compiled_step), expected)

    model = Net().float()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Sum)

    def autocast_step(step):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(data(step)[portion()].float()).float().pow(2).sum().div(N)
        loss.backward()
        optimizer.step()

    weights = train(optimizer, model, autocast_step)
    for other in hvd.allgather_object(weights):
        agree(other, weights)


@check
def batch_norm_over_all_ranks():
    ours, theirs = hvd.SyncBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    for step in range(2):
        x = data(step)
        whole, part = x.clone().requires_grad_(), x[portion()].clone().requires_grad_()
        (theirs(whole) ** 3).sum().backward()
        (ours(part) ** 3).sum().backward()
        torch.testing.assert_close(part.grad, whole.grad[portion()])
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    summed = hvd.allreduce(ours.weight.grad, op=hvd.Sum)
    torch.testing.assert_close(summed, theirs.weight.grad)


@check
def states_of_optimizers_are_the_roots():
    rank = hvd.rank()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * (rank + 1))
    for step in range(2 * (1 - min(rank, 1))):
        model(data(step)).sum().backward()
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    states = hvd.allgather_object(optimizer.state_dict())
    assert all(len(state["state"]) == len(states[0]["state"]) for state in states)
    assert all(state["param_groups"] == states[0]["param_groups"] for state in states)
    agree(
        [v["exp_avg"] for v in states[rank]["state"].values()],
        [v["exp_avg"] for v in states[0]["state"].values()],
    )
    wrong = torch.optim.SGD([torch.nn.Parameter(torch.ones(rank + 1))], lr=0.1)
    raises(ValueError, lambda: hvd.broadcast_optimizer_state(wrong, 0), "other parameters")


@check
def adasum_training_ends_alike_everywhere():
    model = Net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Adasum)

    def step_once(step):
        model(data(step)[portion()]).pow(2).mean().backward()
        optimizer.step()

    before = model(data(9)).pow(2).mean().item()
    weights = train(optimizer, model, step_once)
    assert model(data(9)).pow(2).mean().item() < before
    for other in hvd.allgather_object(weights):
        agree(other, weights)


@check
def elastic_state_is_rank_0s():
    state = hvd.elastic.TorchState(Net(), batch=hvd.rank(), sampler=None)
    state.sync()
    assert state.batch == 0
    state.commit()


@check
def init_and_shutdown_again_and_again():
    for number in range(20):
        if hvd.rank() == 0:
            hvd.allreduce_async(torch.ones(1), name="never synchronised")
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.init()
        assert hvd.allreduce(torch.tensor(number), op=hvd.Sum) == number * hvd.size()


@check
def the_scripts_own_torch_distributed_works_beside():
    torch.distributed.init_process_group("gloo")
    tensor = torch.ones(1)
    torch.distributed.all_reduce(tensor)
    assert tensor == hvd.size()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
    torch.distributed.destroy_process_group()


@check
def data_loaders_with_processes_of_their_own():
    dataset = torch.utils.data.TensorDataset(torch.arange(8.0))
    sampler = torch.utils.data.DistributedSampler(dataset, hvd.size(), hvd.rank(), shuffle=False)
    total = torch.zeros(1)
    for (batch,) in torch.utils.data.DataLoader(dataset, 2, sampler=sampler, num_workers=1):
        total += hvd.allreduce(batch, op=hvd.Sum).sum()
    assert total >= 28


if __name__ == "__main__":
    check.run()
