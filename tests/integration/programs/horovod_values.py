"""What every rank checks of the values and gradients of operations, also within process sets.

``horovod_values.py FOLDER``, by a launcher. Every rank knows what all others have.
"""

import torch
from tests.integration.programs.hvd_checks import Checks
from torch import nn

import bireme.horovod.torch as hvd

check = Checks()
everywhere = check.everywhere


def rows(rank, count=None):
    """Return what a rank holds: a row more than its number, all of them different."""
    return torch.arange(2.0 * (count or rank + 1)).view(-1, 2).double() + 100 * rank


def with_gradient(tensor):
    return tensor.clone().requires_grad_()


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


# Values, on all ranks and within sets.


@everywhere
def reductions_of_one_tensor_and_of_groups(which, ranks):
    mine = rows(hvd.rank(), 2)
    each = torch.stack([rows(rank, 2) for rank in ranks])
    for op, expected in (
        (hvd.Sum, each.sum(0)),
        (hvd.Average, each.mean(0)),
        (hvd.Min, each.amin(0)),
        (hvd.Max, each.amax(0)),
        (hvd.Product, each.prod(0)),
    ):
        torch.testing.assert_close(hvd.allreduce(mine, op=op, process_set=which), expected)
        pair = hvd.grouped_allreduce([mine, 2 * mine[0]], op=op, process_set=which)
        torch.testing.assert_close(pair[0], expected)
        assert isinstance(pair, list)
    turned = mine.t()
    assert hvd.allreduce_(turned, op=hvd.Sum, process_set=which) is turned
    same(turned, each.sum(0).t())
    group = [torch.ones(2) * hvd.rank(), torch.ones(()) * hvd.rank()]
    found = hvd.grouped_allreduce_(group, op=hvd.Sum, process_set=which)
    assert all(one is two for one, two in zip(found, group, strict=True))
    assert group[1].item() == sum(ranks)
    halves = torch.full((2,), 3.0 * which.size(), dtype=torch.float16)
    scales = {"prescale_factor": 1 / 3, "postscale_factor": 0.5, "process_set": which}
    assert hvd.allreduce(halves, op=hvd.Average, **scales).tolist() == [which.size() / 2] * 2


@everywhere
def gathering_and_broadcasting(which, ranks):
    mine = rows(hvd.rank())
    whole = torch.cat([rows(rank) for rank in ranks])
    same(hvd.allgather(mine, process_set=which), whole)
    one, two = hvd.grouped_allgather([mine, mine[:1].int()], process_set=which)
    same(one, whole)
    same(two, torch.cat([rows(rank)[:1].int() for rank in ranks]))
    for root in ranks:
        tensor = rows(hvd.rank(), 2)
        same(hvd.broadcast(tensor, root, process_set=which), rows(root, 2))
        same(tensor, rows(hvd.rank(), 2))
        assert hvd.broadcast_(tensor, root, process_set=which) is tensor
        same(tensor, rows(root, 2))
        assert hvd.broadcast_object({"of": hvd.rank()}, root, process_set=which) == {"of": root}
    assert hvd.allgather_object("x" * hvd.rank(), process_set=which) == ["x" * r for r in ranks]


@everywhere
def exchanging(which, ranks):
    """Rank r sends r + 1 rows to the first of the set, r + 2 to the next, and keeps a rest."""
    place = which.rank()
    counts = {rank: [rank + 1 + to for to in range(len(ranks))] for rank in ranks}
    sent = {rank: rows(rank, sum(counts[rank]) + 1) for rank in ranks}
    splits = torch.tensor(counts[hvd.rank()], dtype=torch.int32)
    output, received = hvd.alltoall(sent[hvd.rank()], splits, process_set=which)
    parts = [sent[rank].split([*counts[rank], 1])[place] for rank in ranks]
    same(output, torch.cat(parts))
    assert received.tolist() == [counts[rank][place] for rank in ranks]
    assert received.dtype is torch.int32
    even = hvd.alltoall(rows(hvd.rank(), 2 * len(ranks)), process_set=which)
    same(even, torch.cat([rows(r, 2 * len(ranks))[2 * place : 2 * place + 2] for r in ranks]))
    number = hvd.alltoall_async(rows(hvd.rank(), len(ranks)), process_set=which)
    assert len(hvd.synchronize(number)) == 2


@everywhere
def scattering(which, ranks):
    """One row more than can be dealt evenly: it goes to the first."""
    count = 2 * len(ranks) + 1
    low = 2 * which.rank() + min(which.rank(), 1)
    own = slice(low, low + 2 + (which.rank() == 0))
    each = torch.stack([rows(rank, count) for rank in ranks])
    mine, total = rows(hvd.rank(), count), each.sum(0)
    same(hvd.reducescatter(mine, op=hvd.Sum, process_set=which), total[own])
    mean = hvd.reducescatter(mine, process_set=which)
    torch.testing.assert_close(mean, each.mean(0)[own])
    scales = {"prescale_factor": 0.5, "postscale_factor": 4.0, "process_set": which}
    same(hvd.reducescatter(mine, op=hvd.Sum, **scales), 2 * total[own])
    one, two = hvd.grouped_reducescatter([mine, mine.int()], op=hvd.Sum, **scales)
    same(one, 2 * total[own])
    assert two.dtype is torch.int32
    few = hvd.reducescatter(torch.ones(1, 2), op=hvd.Sum, process_set=which)
    assert few.shape == (int(which.rank() == 0), 2)


@everywhere
def sparse_sums_and_adasum(which, ranks):
    dense = torch.zeros(hvd.size() + 1, 2)
    dense[hvd.rank()], dense[-1] = hvd.rank() + 1.0, 1.0
    for op in (hvd.Sum, hvd.Average):
        found = hvd.sparse_allreduce_async(dense.to_sparse(1), "sparse", op, process_set=which)()
        assert found.is_sparse
        same(found.to_dense(), hvd.allreduce(dense, op=op, process_set=which))
    apart = torch.zeros(hvd.size())
    apart[hvd.rank()] = 2.0
    expected = torch.zeros(hvd.size())
    expected[ranks] = 2.0
    torch.testing.assert_close(hvd.allreduce(apart, op=hvd.Adasum, process_set=which), expected)


# Gradients. What comes in on rank r is r + 1.


def weight(rank):
    return rank + 1.0


@everywhere
def gradients_of_reductions_and_broadcasts(which, ranks):
    total = sum(map(weight, ranks))
    for op, scale in ((hvd.Sum, 1.0), (hvd.Average, 1 / len(ranks))):
        tensor = with_gradient(rows(hvd.rank(), 2))
        result = hvd.allreduce(tensor, op=op, prescale_factor=3.0, process_set=which)
        (result * weight(hvd.rank())).sum().backward()
        torch.testing.assert_close(tensor.grad, torch.full_like(tensor, 3.0 * total * scale))
        pair = [with_gradient(rows(hvd.rank(), 2)) for _ in range(2)]
        one, two = hvd.grouped_allreduce(pair, op=op, process_set=which)
        ((one + 2 * two) * weight(hvd.rank())).sum().backward()
        for times, each in enumerate(pair, 1):
            torch.testing.assert_close(each.grad, torch.full_like(each, times * total * scale))
    for root in ranks:
        tensor = with_gradient(rows(hvd.rank(), 2))
        result = hvd.broadcast(tensor, root, process_set=which)
        (result * weight(hvd.rank())).sum().backward()
        mean = total / len(ranks) if hvd.rank() == root else 0.0
        torch.testing.assert_close(tensor.grad, torch.full_like(tensor, mean))


@everywhere
def gradients_of_gathering_and_scattering(which, ranks):
    mean = sum(map(weight, ranks)) / len(ranks)
    tensor = with_gradient(rows(hvd.rank()))
    (hvd.allgather(tensor, process_set=which) * weight(hvd.rank())).sum().backward()
    torch.testing.assert_close(tensor.grad, torch.full_like(tensor, mean))
    pair = [with_gradient(rows(hvd.rank())), with_gradient(rows(hvd.rank(), 3))]
    one, two = hvd.grouped_allgather(pair, process_set=which)
    ((one.sum() + 2 * two.sum()) * weight(hvd.rank())).backward()
    for times, each in enumerate(pair, 1):
        torch.testing.assert_close(each.grad, torch.full_like(each, times * mean))
    sizes = [3, *[2] * (len(ranks) - 1)]
    of_row = [weight(r) for r, n in zip(ranks, sizes, strict=True) for _ in range(n)]
    expected = torch.tensor(of_row).double().view(-1, 1).expand(-1, 2)
    for op, scale in ((hvd.Sum, float(len(ranks))), (hvd.Average, 1.0)):
        tensor = with_gradient(rows(hvd.rank(), sum(sizes)))
        result = hvd.reducescatter(tensor, op=op, process_set=which)
        (result * weight(hvd.rank())).sum().backward()
        torch.testing.assert_close(tensor.grad, scale * expected)
        pair = [with_gradient(rows(hvd.rank(), sum(sizes))) for _ in range(2)]
        one, two = hvd.grouped_reducescatter(pair, op=op, process_set=which)
        ((one + 2 * two) * weight(hvd.rank())).sum().backward()
        for times, each in enumerate(pair, 1):
            torch.testing.assert_close(each.grad, times * scale * expected)


@everywhere
def gradients_of_exchanges(which, ranks):
    """They come back weighted by who had the rows; what was sent to nobody has zeros."""
    splits = torch.arange(1, len(ranks) + 1, dtype=torch.int32)
    tensor = with_gradient(rows(hvd.rank(), int(splits.sum()) + 2))
    output, received = hvd.alltoall(tensor, splits, process_set=which)
    assert not received.requires_grad
    (output * weight(hvd.rank())).sum().backward()
    of_row = [weight(r) for r, n in zip(ranks, splits.tolist(), strict=True) for _ in range(n)]
    expected = torch.tensor([*of_row, 0.0, 0.0]).double().view(-1, 1).expand(-1, 2)
    torch.testing.assert_close(tensor.grad, expected)
    tensor = with_gradient(rows(hvd.rank(), len(ranks)))
    (hvd.alltoall(tensor, process_set=which) * weight(hvd.rank())).sum().backward()
    expected = torch.tensor([weight(r) for r in ranks]).double().view(-1, 1).expand(-1, 2)
    torch.testing.assert_close(tensor.grad, expected)


# Layers and optimizers.


@everywhere
def batch_norm_over_the_ranks_of_a_set(which, ranks):
    torch.manual_seed(0)
    parts = {rank: torch.randn(2 + rank, 3, 4).double() for rank in range(hvd.size())}
    ours, theirs = hvd.SyncBatchNorm(3, process_set=which).double(), nn.BatchNorm1d(3).double()
    mine = with_gradient(parts[hvd.rank()])
    whole = with_gradient(torch.cat([parts[rank] for rank in ranks]))
    (ours(mine) ** 3).sum().backward()
    (theirs(whole) ** 3).sum().backward()
    low = sum(len(parts[rank]) for rank in ranks if rank < hvd.rank())
    torch.testing.assert_close(mine.grad, whole.grad[low : low + len(mine)])
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


def optimizers():
    """Yield every optimizer of torch over a layer that only its rank has had in training."""
    for kind in torch.optim.Optimizer.__subclasses__():
        if not kind.__module__.startswith("torch.optim."):
            continue
        torch.manual_seed(hvd.rank())
        is_sparse = kind is torch.optim.SparseAdam
        model = nn.Embedding(5, 3, sparse=True) if is_sparse else nn.Linear(3, 2, bias=False)
        optimizer = kind(model.parameters(), lr=0.01 * (1 + hvd.rank()))
        x = torch.tensor([1, 3]) if is_sparse else torch.ones(1, 3)
        yield model, optimizer, lambda model=model, x=x: model(x).pow(2).sum()


@check
def the_state_of_every_optimizer_is_the_roots():
    root = hvd.size() - 1
    for model, optimizer, loss in optimizers():

        def closure(optimizer=optimizer, loss=loss):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            return value

        for _ in range(2 if hvd.rank() == root else hvd.rank()):
            optimizer.step(closure)
        before = model.weight.detach().clone()
        hvd.broadcast_optimizer_state(optimizer, root, model)
        same(model.weight.detach(), before)
        states = hvd.allgather_object(optimizer.state_dict())
        for state in states:
            assert state["param_groups"] == states[root]["param_groups"], type(optimizer)
            same(state["state"], states[root]["state"])
        # From one model all go on alike.
        hvd.broadcast_parameters(model.state_dict(), root)
        optimizer.step(closure)
        for other in hvd.allgather_object(model.weight.detach()):
            same(other, model.weight.detach())


@check
def frozen_parameters_stay_without_a_gradient():
    frozen = nn.Parameter(torch.tensor([1, 3]), requires_grad=False)
    trained = nn.Parameter(torch.rand(4))
    inner = torch.optim.SGD([frozen, trained], lr=0.001, weight_decay=1e-6, momentum=0.9)
    names = [("frozen", frozen), ("trained", trained)]
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=names)
    hvd.broadcast_parameters({"frozen": frozen, "trained": trained}, root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert frozen.grad is None
    (trained[frozen] * (1 + hvd.rank())).sum().backward()
    optimizer.step()
    assert frozen.grad is None
    mean = (hvd.size() + 1) / 2
    torch.testing.assert_close(trained.grad, torch.tensor([0.0, mean, 0.0, mean]))


@check
def two_optimizers_of_which_one_is_frozen_in_turn():
    torch.manual_seed(hvd.rank())
    nets = [nn.Linear(4, 3), nn.Linear(3, 1)]
    optimizers = []
    for net in nets:
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        inner = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizers.append(hvd.DistributedOptimizer(inner, net.named_parameters()))
    for step in range(6):
        trains = step % 2
        for number, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
            net.requires_grad_(number == trains)
            optimizer.zero_grad()
        nets[1](nets[0](torch.rand(5, 4))).sum().backward()
        optimizers[trains].step()
        for number, net in enumerate(nets):
            assert all((p.grad is not None) == (number == trains) for p in net.parameters())
    weights = hvd.allgather_object([net.weight.detach() for net in nets])
    for other in weights:
        same(other, weights[0])


if __name__ == "__main__":
    check.run()
