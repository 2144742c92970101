"""More ways to train by ``DistributedOptimizer``, each compared with one process in float64.

``horovod_training.py FOLDER``, by a launcher. Every rank knows all data, trains on its part, and
trains a reference on the whole.
"""

import copy
import warnings

import torch
from tests.integration.programs import horovod_job as job
from tests.integration.programs.hvd_checks import Checks
from torch import nn

import bireme.horovod.torch as hvd

check = Checks()
STEPS = 4


def square(model, x):
    return model(x).pow(2).sum()


def sgd(model):
    # Without weight decay: parameters that are not used have gradients of zeros here, else none.
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def plain_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def pair(**options):
    """Return a model and its distributed optimizer, and the same for one process."""
    model = job.Net()
    alone = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)
    return model, optimizer, alone, sgd(alone)


def same(model, alone, **tolerance):
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, **(tolerance or {"rtol": 1e-9, "atol": 1e-9}))


def steps(optimizer, loss_of):
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(step)
        optimizer.step()


@check
def ranks_with_more_batches_go_on_until_all_have_joined():
    # Rank r has r + 1 batches, of r + 1 rows each; a step is what all together have left.
    ranks = range(hvd.size())
    rows = {r: torch.split(job.data(r)[: (r + 1) ** 2 or 1], r + 1) for r in ranks}
    model, optimizer, alone, plain = pair(op=hvd.Sum)
    for x in rows[hvd.rank()][: hvd.rank() + 1]:
        optimizer.zero_grad()
        square(model, x).backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    for step in ranks:
        plain.zero_grad()
        for r in ranks[step:]:
            if step < len(rows[r]):
                square(alone, rows[r][step]).backward()
        plain.step()
    same(model, alone)


@check
def passes_groups_predivision_and_means_together():
    size = hvd.size()
    options = {"backward_passes_per_step": 3, "groups": 2, "gradient_predivide_factor": 2.0}
    model, optimizer, alone, plain = pair(**options)

    def parts(step):
        for part in job.data(step)[job.portion()].tensor_split(3):
            (square(model, part) * size).backward()

    steps(optimizer, parts)
    steps(plain, lambda step: square(alone, job.data(step)).backward())
    same(model, alone)


@check
def the_number_of_passes_may_change():
    model, optimizer, alone, plain = pair(op=hvd.Sum)

    def parts(step):
        optimizer.set_backward_passes_per_step(step + 1)
        for part in job.data(step)[job.portion()].tensor_split(step + 1):
            square(model, part).backward()

    steps(optimizer, parts)
    steps(plain, lambda step: square(alone, job.data(step)).backward())
    same(model, alone)


@check
def gradients_are_clipped_as_a_whole():
    model, optimizer, alone, plain = pair(op=hvd.Sum)
    for step in range(STEPS):
        optimizer.zero_grad()
        square(model, job.data(step)[job.portion()]).backward()
        optimizer.synchronize()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.zero_grad()
        square(alone, job.data(step)).backward()
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(alone.parameters(), 0.5))
        plain.step()
    same(model, alone)


@check
def an_overflow_on_one_rank_has_all_skip_the_step():
    model, optimizer, alone, plain = pair(op=hvd.Sum)
    ours, theirs = (torch.amp.GradScaler("cpu", init_scale=8.0) for _ in range(2))
    for step in range(STEPS):
        x = job.data(step)
        if step == 1:
            x[-1] = torch.inf
        optimizer.zero_grad()
        ours.scale(square(model, x[job.portion()])).backward()
        optimizer.synchronize()
        ours.unscale_(optimizer)
        with optimizer.skip_synchronize():
            ours.step(optimizer)
        ours.update()
        plain.zero_grad()
        theirs.scale(square(alone, x)).backward()
        theirs.step(plain)
        theirs.update()
        assert ours.get_scale() == theirs.get_scale() == (8.0 if step == 0 else 4.0)
    same(model, alone)


@check
def autocast_is_as_near_as_its_precision():
    model, optimizer, alone, plain = pair(op=hvd.Sum)
    for each in (model, alone):
        each.float()

    def loss(net, rows):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = net(rows.float())
        return output.float().pow(2).sum().div(job.N)

    steps(optimizer, lambda step: loss(model, job.data(step)[job.portion()]).backward())
    steps(plain, lambda step: loss(alone, job.data(step)).backward())
    same(model, alone, rtol=0.02, atol=0.005)


@check
def casts_cost_no_more_than_their_precision():
    for compression, limit in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        options = {"groups": 2, "gradient_predivide_factor": 2.0, "backward_passes_per_step": 2}
        model, optimizer, alone, plain = pair(compression=compression, **options)

        def parts(step, model=model):
            for part in job.data(step)[job.portion()].tensor_split(2):
                square(model, part).mul(hvd.size() / job.N).backward()

        steps(optimizer, parts)
        steps(plain, lambda step, alone=alone: square(alone, job.data(step)).div(job.N).backward())
        same(model, alone, rtol=limit, atol=limit)


@check
def a_process_set_trains_by_itself():
    chosen = hvd.add_process_set(range(hvd.size() - 1))
    model, optimizer, alone, plain = pair(op=hvd.Sum, process_set=chosen)
    members = max(hvd.size() - 1, 1)

    def loss(step):
        part = job.data(step).tensor_split([2 * (n + 1) for n in range(members - 1)])
        square(model, part[hvd.rank()] if chosen.included() else job.data(step)).backward()

    steps(optimizer, loss)
    steps(plain, lambda step: square(alone, job.data(step)).backward())
    same(model, alone)
    hvd.remove_process_set(chosen)


@check
def layers_that_thaw_and_groups_that_come_later():
    model, alone = job.Net(), job.Net()
    made = []
    for each in (model, alone):
        each.first.requires_grad_(False)
        made.append(torch.optim.SGD(each.second.parameters(), lr=0.1, momentum=0.9))
    names = [(f"second.{n}", p) for n, p in model.second.named_parameters()]
    optimizer, plain = hvd.DistributedOptimizer(made[0], names, op=hvd.Sum), made[1]
    for step in range(STEPS):
        if step == 1:
            for each, its in ((model, optimizer), (alone, plain)):
                its.add_param_group({"params": list(each.first.parameters()), "lr": 0.05})
        if step == 2:
            for each in (model, alone):
                each.first.requires_grad_(True)
        for each, its, rows in ((model, optimizer, job.portion()), (alone, plain, slice(None))):
            its.zero_grad()
            square(each, job.data(step)[rows]).backward()
            its.step()
    same(model, alone)


@check
def embeddings_with_sparse_gradients():
    ids = torch.arange(2 * job.N).view(job.N, 2) % 10
    for as_dense in (False, True):
        torch.manual_seed(0)
        model = nn.EmbeddingBag(10, 3, sparse=True, mode="sum").double()
        alone = copy.deepcopy(model)
        optimizer = hvd.DistributedOptimizer(
            plain_sgd(model), model.named_parameters(), op=hvd.Sum, sparse_as_dense=as_dense
        )
        plain = plain_sgd(alone)
        steps(optimizer, lambda step, m=model: square(m, ids[job.portion()]).div(99).backward())
        steps(plain, lambda step, m=alone: square(m, ids).div(99).backward())
        same(model, alone)


@check
def two_optimizers_of_one_loss():
    """A generator and a discriminator: each backward pass touches the other's parameters."""
    warnings.filterwarnings("ignore", "optimizer.step.. called without")
    torch.manual_seed(0)
    nets = [nn.Linear(4, 3).double(), nn.Linear(3, 1).double()]
    alone = copy.deepcopy(nets)
    ours = [
        hvd.DistributedOptimizer(adam(net), net.named_parameters(prefix=prefix), op=hvd.Sum)
        for net, prefix in zip(nets, ("generator", "discriminator"), strict=True)
    ]
    for models, optimizers, rows in (
        (nets, ours, job.portion()),
        (alone, [adam(net) for net in alone], slice(None)),
    ):
        generator, discriminator = models
        for step in range(STEPS):
            for which, sign in ((1, 1.0), (0, -1.0)):
                for optimizer in optimizers:
                    if hasattr(optimizer, "synchronize"):
                        optimizer.synchronize()
                    optimizer.zero_grad()
                output = discriminator(torch.tanh(generator(job.data(step)[rows])))
                (sign * output.pow(2).sum()).backward()
                optimizers[which].step()
        for optimizer in ours:
            optimizer.synchronize()
    for one, other in zip(nets, alone, strict=True):
        same(one, other)


if __name__ == "__main__":
    check.run()
