"""One rank of a group of the backend bireme; ``bank_job.py CASE RANK SIZE STORE``."""

import gc
import os
import sys
import threading
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from bireme.collective.backend import register_backend
from bireme.errors import CollectiveError, JobError


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def begin(rank, size, store, backend="bireme"):
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=40),
    )


def trained(group, rank, hook=None, **options):
    torch.manual_seed(0)
    body = [nn.Linear(20, 300), nn.ReLU(), nn.BatchNorm1d(300), nn.Linear(300, 10)]
    net = nn.Sequential(*body).double()
    model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.01, **options)
    if hook is not None:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(5):
        x, y = (torch.randn(8, width, generator=generator).double() for width in (20, 10))
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return torch.cat([each.detach().view(-1) for each in net.parameters()])


def embedded(group, rank):
    """Train with sparse gradients."""
    torch.manual_seed(0)
    body = [nn.EmbeddingBag(50, 6, sparse=True, mode="sum"), nn.Linear(6, 3)]
    net = nn.Sequential(*body).double()
    model = DistributedDataParallel(net, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(4):
        words = torch.randint(50, (8, 5), generator=generator)
        optimizer.zero_grad()
        model(words).square().mean().backward()
        assert net[0].weight.grad.is_sparse
        optimizer.step()
    return torch.cat([each.detach().view(-1) for each in net.parameters()])


def ddp(rank, size, store):
    begin(rank, size, store)
    ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
    for options in (
        {},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"hook": default_hooks.allreduce_hook},
        {"hook": default_hooks.fp16_compress_hook},
    ):
        a, b = trained(ours, rank, **options), trained(gloo, rank, **options)
        limit = 1e-12 if "fp16" not in str(options) else 1e-2
        assert (a - b).abs().max() < limit, (options, (a - b).abs().max())
        same = [torch.empty_like(a) for _ in range(size)]
        dist.all_gather(same, a)
        assert all(torch.equal(each, a) for each in same)
    a, b = embedded(ours, rank), embedded(gloo, rank)
    assert (a - b).abs().max() < 1e-12, (a - b).abs().max()
    whole(rank, size)
    dist.destroy_process_group()


def whole(rank, size):
    """What else programs call: objects, subgroups, futures, functional collectives."""
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": each} for each in range(size)]
    told = [f"from {rank}"]
    dist.broadcast_object_list(told, src=size - 1)
    assert told == [f"from {size - 1}"]
    edge = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=edge)
        assert tensor.tolist() == [2.0] * 3
    works = [dist.all_reduce(torch.full((99,), 1.0 * i), async_op=True) for i in range(50)]
    assert [work.result()[0][0].item() for work in works if work.wait()] == [
        1.0 * i * size for i in range(50)
    ]
    import torch.distributed._functional_collectives as functional

    assert functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD)[0] == size
    dist.barrier()


def run_until_killed(rank, size, store):
    begin(rank, size, store)
    generator = torch.Generator().manual_seed(1)
    say("running")
    try:
        while True:
            length = int(10 ** (torch.rand(1, generator=generator).item() * 6.5))
            kind = int(torch.randint(5, (1,), generator=generator))
            call(kind, torch.ones(length), size)
    except CollectiveError as error:
        say(f"{type(error).__name__}: {error}")
    try:
        dist.barrier()
    except (JobError, RuntimeError) as error:
        say(f"then {error}")
    dist.destroy_process_group()
    say("ended")


def call(kind, tensor, size):
    if kind == 0:
        dist.all_reduce(tensor)
        assert tensor[0] == tensor[-1] == size
    elif kind == 1:
        dist.broadcast(tensor, size - 1)
    elif kind == 2:
        dist.all_gather([torch.empty_like(tensor) for _ in range(size)], tensor)
    elif kind == 3:
        dist.all_reduce(tensor, async_op=True).wait()
    else:
        whole = tensor[: len(tensor) // size * size]
        dist.all_to_all_single(torch.empty_like(whole), whole)


def held():
    gc.collect()
    with open("/proc/self/maps") as maps:
        mapped = sum("bireme-bank" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), mapped, threading.active_count()


def cycles(rank, size, store):
    before = None
    for number in range(200):
        begin(rank, size, f"{store}.{number}")
        tensor = torch.ones(100)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, async_op=True).wait()
        assert tensor[0] == size**2
        dist.barrier()
        dist.destroy_process_group()
        if number == 4:
            before = held()
    after = held()
    assert after == before, (before, after)
    assert after[1] == 0


def async_death(rank, size, store):
    """DDP's backward pass, where C++ waits for a future of ours."""
    begin(rank, size, store)
    model = DistributedDataParallel(nn.Linear(2000, 2000))
    say("running")
    try:
        while True:
            model(torch.ones(4, 2000)).sum().backward()
    except RuntimeError as error:
        say(f"RuntimeError: {error}")
    dist.destroy_process_group()
    say("ended")


def interrupted(rank, size, store):
    begin(rank, size, store)
    say("running")
    try:
        while True:
            # Rank 0 is late for ever, so that the others are asleep.
            if rank == 0:
                time.sleep(60)
            dist.all_reduce(torch.ones(10))
    except KeyboardInterrupt:
        say("KeyboardInterrupt")
    try:
        dist.barrier()
    except (JobError, RuntimeError) as error:
        say(f"then {error}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    register_backend()
    case, rank, size, store = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    globals()[case](rank, size, store)
    say("done")
