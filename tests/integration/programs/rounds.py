"""What synchronous stores promise, on every worker of a job with two servers."""

import copy
import random
import time

import torch
from tests.integration.programs.harness import Checks, adding, equal, refuses
from torch import nn

import bireme
from bireme.compress import create as compressor
from bireme.errors import ConfigError, StateError, UnknownKeyError, UnsupportedError
from bireme.kvstore import OptimizerSpec

RATE = 2
SMALL, BIG, ODD = (2, 3), (1200, 1200), (1211, 1211)

check = Checks()


@check
def dense_values_are_summed_and_added(job):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        store = job.store()
        keys = {"small": SMALL, "big": BIG, "odd": ODD}
        store.init(list(keys), [torch.ones(shape, dtype=dtype) for shape in keys.values()])
        store.set_optimizer(adding(RATE))
        for repeat in range(7):
            for key, shape in keys.items():
                store.push(key, torch.full(shape, job.rank + 1.0, dtype=dtype))
            for key in keys:
                equal(store.pull(key), job.sum_of_ranks * RATE * (repeat + 1) + 1)


@check
def half_types_have_float32_master_weights(job):
    for dtype in (torch.float16, torch.bfloat16):
        tiny, many = {torch.float16: (2.0**-13, 16), torch.bfloat16: (2.0**-9, 8)}[dtype]
        store = job.store()
        store.init(["small", "big"], [torch.ones(SMALL, dtype=dtype), torch.ones(BIG, dtype=dtype)])
        store.set_optimizer(adding(1.0))
        for _ in range(many):
            for key, shape in (("small", SMALL), ("big", BIG)):
                store.push(key, torch.full(shape, tiny, dtype=dtype))
        expected = torch.tensor(1 + many * job.size * tiny).to(dtype).item()
        assert expected > 1
        equal(store.pull("small"), expected)
        equal(store.pull("big"), expected)


@check
def half_types_are_summed_in_float32(job):
    store = job.store()
    store.init("x", torch.zeros(SMALL, dtype=torch.float16))
    store.push("x", torch.full(SMALL, 2048.0 if job.rank == 0 else 1.0, dtype=torch.float16))
    equal(store.pull("x"), torch.full(SMALL, 2047.0 + job.size))


@check
def integers_of_every_type(job):
    store = job.store()
    dtypes = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
    keys = [str(dtype) for dtype in dtypes]
    store.init(keys, [torch.zeros(SMALL, dtype=dtype) for dtype in dtypes])
    store.push(keys, [torch.full(SMALL, job.rank + 1, dtype=dtype) for dtype in dtypes])
    for value in store.pull(keys):
        equal(value, job.sum_of_ranks)


@check
def odd_shapes(job):
    store = job.store()
    shapes = [(), (0,), (1,), (3, 0, 2), (1025, 3), (700_001,)]
    keys = list(range(len(shapes)))
    store.init(keys, [torch.zeros(shape) for shape in shapes])
    values = [torch.full(shape, job.rank + 1.0) for shape in shapes]
    outs = [torch.full(shape, -1.0) for shape in shapes]
    store.pushpull(keys, values, outs)
    for out, value in zip(outs, values, strict=True):
        equal(out, job.sum_of_ranks)
        equal(value, job.rank + 1.0)
    store.pushpull(keys, values)
    for value in values:
        equal(value, job.sum_of_ranks)


@check
def values_that_are_no_plain_memory(job):
    store = job.store()
    store.init(0, torch.zeros(300, 1000))
    turned = torch.full((1000, 300), job.rank + 1.0).T
    parameter = nn.Parameter(torch.full((300, 1000), job.rank + 1.0))
    for value in (turned, parameter, torch.full((1, 1), job.rank + 1.0).expand(300, 1000)):
        out = torch.zeros(1000, 300).T
        store.pushpull(0, value, out)
        equal(out, job.sum_of_ranks)
    target = nn.Parameter(torch.zeros(300, 1000))
    store.pull(0, target)
    equal(target.detach(), job.sum_of_ranks)


@check
def results_that_share_memory_with_values(job):
    # Over a megabyte, so that the first part's result arrives while the last is still to be sent.
    store, size = job.store(), 1_000_000
    store.init(0, torch.zeros(size))
    ramp = torch.arange(size + 1, dtype=torch.float32) * (job.rank + 1)
    first = ramp[:-1].clone()
    store.pushpull(0, ramp[:-1], ramp[1:])
    equal(ramp[1:], first / (job.rank + 1) * job.sum_of_ranks)


@check
def one_tensor_pushed_to_two_keys(job):
    store = job.store()
    store.init([0, 1], [torch.zeros(SMALL)] * 2)
    value = torch.full(SMALL, job.rank + 1.0)
    store.pushpull([0, 1], [value, value])
    equal(value, job.sum_of_ranks)
    equal(store.pull(0), job.sum_of_ranks)
    equal(store.pull(1), job.sum_of_ranks)


@check
def values_may_change_after_push(job):
    store = job.store()
    store.init(0, torch.zeros(BIG))
    value = torch.full(BIG, job.rank + 1.0)
    for _ in range(3):
        value.fill_(job.rank + 1.0)
        store.push(0, value)
        value.fill_(-7)
    equal(store.pull(0), job.sum_of_ranks)


def every(step, value):
    """Return every ``step``-th row of a dense value, for which ``to_sparse`` takes a second."""
    rows = torch.arange(0, len(value), step)
    return torch.sparse_coo_tensor(rows[None], value[rows], value.shape, check_invariants=True)


@check
def row_sparse_values(job):
    for shape in (SMALL, (1200, 300)):
        store = job.store()
        store.init("rows", every(1, torch.ones(shape)))
        store.set_optimizer(adding(RATE))
        for repeat in range(7):
            row = job.rank % 2
            content = torch.full((1, shape[1]), job.rank + 1.0)
            store.push("rows", torch.sparse_coo_tensor([[row]], content, shape))
            asked = torch.randint(
                0, shape[0], (4,), generator=torch.Generator().manual_seed(repeat)
            )
            rows = store.row_sparse_pull("rows", row_ids=asked).to_dense()
            expected = torch.zeros(shape)
            expected[asked] = 1
            for rank in range(job.size):
                if rank % 2 in asked.tolist():
                    expected[rank % 2] += (rank + 1) * RATE * (repeat + 1)
            equal(rows, expected)


@check
def row_sparse_zeros_change_nothing(job):
    for shape in (SMALL, (1200, 300)):
        store = job.store()
        store.init("rows", every(1, torch.ones(shape)))
        store.set_optimizer(adding(RATE))
        store.push("rows", torch.zeros(shape).to_sparse(1))
        everything = torch.arange(shape[0])
        equal(store.row_sparse_pull("rows", row_ids=everything).to_dense(), 1)
        nothing = torch.empty(0, dtype=torch.int64)
        equal(store.row_sparse_pull("rows", row_ids=nothing).to_dense(), 0)


@check
def row_sparse_values_of_large_keys(job):
    for dtype in (torch.float32, torch.float16):
        shape = (6000, 200)
        store = job.store()
        store.init("rows", every(1, torch.ones(shape, dtype=dtype)))
        store.set_optimizer(adding(RATE))
        expected = torch.ones(shape)
        for repeat in range(3):
            mine = torch.full((shape[0], shape[1]), job.rank + 1.0, dtype=dtype)
            store.push("rows", every(2 * (job.rank + 1), mine))
            for rank in range(job.size):
                expected[:: 2 * (rank + 1)] += (rank + 1) * RATE
            asked = torch.randperm(6000, generator=torch.Generator().manual_seed(repeat))[:1800]
            out = every(len(expected), torch.zeros(shape, dtype=dtype))
            store.row_sparse_pull("rows", out, asked)
            chosen = torch.zeros(shape)
            chosen[asked] = expected[asked]
            equal(out.to_dense(), chosen)
        equal(store.pull("rows").to_dense(), expected)


@check
def row_sparse_and_dense_pushes_in_one_round(job):
    store = job.store()
    store.init("mixed", torch.zeros(400, 50))
    dense = torch.full((400, 50), 1.0)
    if job.rank % 2:
        dense = torch.sparse_coo_tensor([[3]], torch.full((1, 50), 10.0), (400, 50))
    store.push("mixed", dense)
    value = store.pull("mixed")
    equal(value[3], (job.size + 1) // 2 + 10.0 * (job.size // 2))
    equal(value[4], (job.size + 1) // 2)


def compressed_push(store, style, key, value):
    value = torch.full(store.pull(key).shape, value) if isinstance(value, float) else value
    if style == "pushpull":
        out = torch.empty_like(value)
        store.pushpull(key, value, out)
        return out
    store.push(key, value)
    return store.pull(key)


@check
def two_bits(job):
    half = 0.5
    for style in ("push and pull", "pushpull"):
        store = job.store()
        store.set_gradient_compression({"type": "2bit", "threshold": half})
        keys = {"small": SMALL, "big": BIG, "odd": ODD}
        store.init(list(keys), [torch.zeros(shape) for shape in keys.values()])
        store.init("ones", torch.ones(SMALL))
        store.set_optimizer(adding(RATE))
        equal(store.pull("ones"), 1)
        step = half * RATE * job.size
        for key in keys:
            equal(store.pull(key), 0)
            for pushed, expected in (
                (0.0, 0),
                (0.4, 0),
                (half - 0.4, step),
                (0.2, step),
                (half - 0.2, 2 * step),
                (half, 3 * step),
            ):
                equal(compressed_push(store, style, key, pushed), expected)


CASTS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def decoded(how, grads):
    """Return what one worker's grads come to, one after another."""
    mine = compressor(how)
    state, result = mine.init(grads[0]), []
    for grad in grads:
        payload, state = mine.compress(grad, state)
        result.append(mine.decompress(payload))
    return result


@check
def random_gradients_compressed_in_every_way(job):
    ways = [
        {"type": "2bit", "threshold": 0.5},
        {"type": "1bit", "threshold": 0.0},
        {"type": "1bit", "threshold": 0.25},
        {"type": "fp16"},
        {"type": "bf16"},
    ]
    for how in ways:
        grads = [
            [
                torch.randn(777, 601, generator=torch.Generator().manual_seed(10 * rank + n))
                for n in range(3)
            ]
            for rank in range(job.size)
        ]
        simulated = [decoded(how, each) for each in grads]
        for style in ("push and pull", "pushpull"):
            store = job.store()
            store.init("x", torch.zeros(777, 601))
            store.set_gradient_compression(how)
            for number in range(3):
                total = simulated[0][number]
                for each in simulated[1:]:
                    total = total + each[number]
                if how["type"] in CASTS:
                    # What is sent in 16 bits is answered in 16 bits: the sum is rounded once.
                    total = total.to(CASTS[how["type"]]).float()
                got = compressed_push(store, style, "x", grads[job.rank][number])
                equal(got, total)
            store.set_gradient_compression(None)
            equal(compressed_push(store, style, "x", 0.375), 0.375 * job.size)


@check
def one_bit(job):
    store = job.store()
    store.set_gradient_compression({"type": "1bit", "threshold": 0.0})
    store.init("x", torch.zeros(BIG))
    store.set_optimizer(adding(RATE))
    step = RATE * job.size
    for pushed, expected in ((1.0, step), (-1.0, 0), (2.0, step), (0.0, 2 * step), (-2.0, step)):
        equal(compressed_push(store, "push and pull", "x", pushed), expected)


@check
def compression_refuses_other_types(job):
    store = job.store()
    store.init("h", torch.zeros(3, dtype=torch.float64))
    store.set_gradient_compression({"type": "2bit"})
    refuses(
        UnsupportedError, "float32", lambda: store.push("h", torch.ones(3, dtype=torch.float64))
    )
    store.set_gradient_compression(None)
    store.push("h", torch.ones(3, dtype=torch.float64))
    equal(store.pull("h"), job.size)


@check
def many_keys_of_any_kind(job):
    store = job.store()
    for group, shape in enumerate((SMALL, (300, 1200))):
        keys = [1000 * group + number for number in range(100 if group == 0 else 10)]
        values = [
            torch.full(shape, float(number), dtype=torch.float32 if number % 2 else torch.float16)
            for number in range(len(keys))
        ]
        store.init(keys, values)
        for number, value in enumerate(store.pull(keys)):
            equal(value, number)


@check
def first_values_are_those_of_rank_0(job):
    store = job.store()
    out = torch.empty(BIG)
    store.broadcast("b", torch.full(BIG, job.rank + 5.0), out)
    equal(out, 5)


@check
def keys_first_used_in_any_order(job):
    store = job.store()
    names = [f"k{number}" for number in range(12)]
    shuffled = random.Random(job.rank).sample(names, len(names))
    for name in shuffled:
        store.init(name, torch.full((5,), float(name[1:])))
    for name in random.Random(10 + job.rank).sample(names, len(names)):
        store.push(name, torch.full((5,), job.rank + 1.0 + int(name[1:])))
    for name in shuffled:
        equal(store.pull(name), job.sum_of_ranks + job.size * int(name[1:]))


@check
def push_and_pushpull_mixed_in_one_round(job):
    store = job.store()
    store.init("x", torch.zeros(BIG))
    for _ in range(3):
        value, out = torch.full(BIG, job.rank + 1.0), torch.empty(BIG)
        if job.rank % 2:
            store.pushpull("x", value, out)
        else:
            store.push("x", value)
            store.pull("x", out)
        equal(out, job.sum_of_ranks)


@check
def pushes_of_one_worker_never_complete_a_round(job):
    store = job.store()
    store.init("x", torch.full((5,), 7.0))
    store.barrier()
    if job.rank == 0:
        store.push("x", torch.full((5,), 1.0))
        store.push("x", torch.full((5,), 100.0))
        time.sleep(0.2)
    store.barrier()
    if job.rank:
        equal(store.pull("x"), 7)
    store.barrier()
    if job.rank:
        store.push("x", torch.full((5,), 2.0))
        equal(store.pull("x"), 1 + 2 * (job.size - 1))
        store.push("x", torch.full((5,), 10.0))
    equal(store.pull("x"), 100 + 10 * (job.size - 1))


@check
def wrong_calls_are_refused_at_once(job):
    store = job.store()
    store.init([3, 5], [torch.ones(SMALL)] * 2)
    store.barrier()
    refuses(StateError, "initialised already", lambda: store.init(3, torch.ones(SMALL)))
    refuses(UnknownKeyError, "never initialised", lambda: store.push(9, torch.ones(SMALL)))
    refuses(ConfigError, "shape", lambda: store.push(3, torch.ones(7)))
    refuses(ConfigError, "integer", lambda: store.pull("3"))
    refuses(ConfigError, "row_sparse_pull", lambda: store.pull(3, torch.eye(2, 3).to_sparse(1)))
    refuses(UnsupportedError, "no code travels", lambda: store.set_updater(max))
    store.push(3, torch.ones(SMALL))
    equal(store.pull(3), job.size)


@check
def one_key_declared_in_two_ways(job):
    store = job.store()
    if job.rank == 0:
        store.init("x", torch.zeros(4))
    store.barrier()
    if job.rank:
        refuses(
            ConfigError,
            "every worker must use it in the same way",
            lambda: store.init("x", torch.zeros(5)),
        )
        store.init("x", torch.zeros(4))
    store.push("x", torch.ones(4))
    equal(store.pull("x"), job.size)


@check
def learning_rate_changes_at_a_definite_round(job):
    store = job.store()
    weight = nn.Parameter(torch.zeros(BIG))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.25)
    store.init("w", weight)
    store.set_optimizer(optimizer)
    value, buffer, rate = 0.0, 0.0, 1.0
    for step in range(6):
        if job.rank:
            time.sleep(0.01 * ((step + job.rank) % 3))
        store.push("w", torch.full(BIG, 1.0))
        buffer = 0.5 * buffer + job.size if step else job.size
        value -= rate * buffer
        optimizer.step()
        scheduler.step()
        rate = scheduler.get_last_lr()[0]
        if step % 2:
            equal(store.pull("w"), value)


@check
def multipliers_work_on_servers(job):
    store = job.store()
    spec = OptimizerSpec(
        "sgd",
        {"lr": 0.5, "weight_decay": 0.5},
        lr_mult={"a": 0.0},
        wd_mult={"b": 0.0},
        groups={"late": {"lr": 1.0}},
    )
    store.set_optimizer(spec)
    store.init(["a", "b", "c"], [torch.ones(SMALL)] * 3)
    store.push(["a", "b", "c"], [torch.full(SMALL, 1 / job.size if job.size == 2 else 1.0)] * 3)
    grad = 1.0 if job.size == 2 else job.size
    for key, expected in (("a", 1.0), ("b", 1 - 0.5 * grad), ("c", 1 - 0.5 * (grad + 0.5))):
        equal(store.pull(key), expected)
    store.init("late", torch.ones(SMALL))
    store.push("late", torch.ones(SMALL))
    equal(store.pull("late"), 1 - (job.size + 0.5))


@check
def another_optimizer_of_the_class_keeps_the_state(job):
    store = job.store()
    store.init("w", torch.zeros(BIG))
    store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
    store.push("w", torch.ones(BIG))
    store.set_optimizer(OptimizerSpec("sgd", {"lr": 0.5, "momentum": 0.5}))
    store.push("w", torch.ones(BIG))
    equal(store.pull("w"), -job.size - 0.5 * 1.5 * job.size)


@check
def optimizers_change_class_and_end(job):
    store = job.store()
    store.init("w", torch.zeros(SMALL))
    store.set_optimizer(OptimizerSpec("adam", {"lr": 1.0}))
    store.push("w", torch.ones(SMALL))
    store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
    before = store.pull("w")
    content = torch.full((1, 3), 1.0)
    store.push("w", torch.sparse_coo_tensor([[1]], content, SMALL))
    before[1] -= job.size
    equal(store.pull("w"), before)
    store.set_updater(None)
    store.push("w", torch.full(SMALL, 3.0))
    equal(store.pull("w"), 3.0 * job.size)


@check
def states_are_saved_once_and_loaded_by_all(job):
    path = str(job.out / "states")
    spec = OptimizerSpec("adam", {"lr": 0.125})
    grads = [torch.randn(900, 1000, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    first, second = job.store(), job.store()
    for store in (first, second):
        store.init(["big", "small"], [torch.ones(900, 1000), torch.ones(SMALL)])
        store.set_optimizer(spec)
    for grad in grads[:2]:
        first.push(["big", "small"], [grad, grad[:2, :3].contiguous()])
    first.save_optimizer_states(path)
    assert (job.out / "states").exists()
    second.overwrite(["big", "small"], first.pull(["big", "small"]))
    second.load_optimizer_states(path)
    for store in (first, second):
        store.push(["big", "small"], [grads[2], grads[2][:2, :3].contiguous()])
    for key in ("big", "small"):
        equal(second.pull(key), first.pull(key))
    refuses(
        OSError, "No such file", lambda: first.save_optimizer_states(str(job.out / "no" / "file"))
    )
    refuses(OSError, "No such file", lambda: first.load_optimizer_states(str(job.out / "missing")))
    assert first.optimizer_states()["big"]["step"].item() == 3


@check
def stores_do_not_disturb_each_other(job):
    one, two = job.store(), job.store("dist_sync_device")
    one.init("x", torch.zeros(3))
    two.init("x", torch.zeros(3))
    two.set_optimizer(adding(1.0))
    for number in range(1, 4):
        one.push("x", torch.full((3,), float(number)))
        two.push("x", [torch.full((3,), 1.0), torch.full((3,), 1.0)])
    equal(one.pull("x"), 3 * job.size)
    equal(two.pull("x"), 6 * job.size)
    two.close()
    refuses(StateError, "closed", lambda: two.pull("x"))
    equal(one.pull("x"), 3 * job.size)


@check
def small_things_are_summed_beside_the_optimizer(job):
    store = job.store()
    store.set_optimizer(adding())
    for number in range(3):
        total = store.sum_over_workers(
            "samples", torch.tensor([job.rank + number], dtype=torch.float64)
        )
        equal(total, job.sum_of_ranks + (number - 1) * job.size)


def scalar_net(value=1.0):
    net = nn.Linear(1, 1, bias=False)
    nn.init.constant_(net.weight, value)
    return net


@check
def trainers_step_by_the_mean(job):
    for on_store in (None, True, False):
        net = scalar_net(1.0 + job.rank)
        trainer = bireme.Trainer(
            net, torch.optim.SGD(net.parameters(), lr=1.0), "dist_sync", update_on_kvstore=on_store
        )
        net.weight.grad = torch.full((1, 1), job.rank + 1.0)
        trainer.step()
        assert abs(net.weight.item() - (1 - job.sum_of_ranks / job.size)) < 1e-6
        if on_store is False:
            trainer.allreduce_grads()
        else:
            refuses(StateError, "updates as it merges", trainer.allreduce_grads)
        trainer.kvstore.close()


@check
def trainers_weigh_unequal_shares(job):
    for on_store in (True, False):
        net = scalar_net()
        trainer = bireme.Trainer(
            net, torch.optim.SGD(net.parameters(), lr=1.0), "dist_sync", update_on_kvstore=on_store
        )
        net.weight.grad = torch.full((1, 1), float(job.rank))
        trainer.step(num_samples=job.rank)
        total = sum(range(job.size))
        expected = 1 - sum(rank * rank for rank in range(job.size)) / total
        assert abs(net.weight.item() - expected) < 1e-6
        trainer.kvstore.close()


@check
def trainers_with_sparse_gradients(job):
    for on_store in (True, False):
        torch.manual_seed(0)
        net = nn.Embedding(6, 2, sparse=True)
        nn.init.ones_(net.weight)
        trainer = bireme.Trainer(
            net, torch.optim.SGD(net.parameters(), lr=1.0), "dist_sync", update_on_kvstore=on_store
        )
        net(torch.tensor([job.rank, 5])).sum().backward()
        trainer.step()
        expected = torch.ones(6, 2)
        expected[: job.size] -= 1 / job.size
        expected[5] -= 1
        assert torch.allclose(net.weight.detach(), expected, atol=1e-6), net.weight
        trainer.kvstore.close()


@check
def trainers_with_compression(job):
    for on_store in (True, False):
        net = nn.Linear(4, 3, bias=False)
        nn.init.zeros_(net.weight)
        trainer = bireme.Trainer(
            net,
            torch.optim.SGD(net.parameters(), lr=1.0),
            "dist_sync",
            compression={"type": "2bit", "threshold": 0.5},
            update_on_kvstore=on_store,
        )
        seen = []
        for _ in range(3):
            net.weight.grad = torch.full((3, 4), 0.3 * job.size)
            trainer.step()
            seen.append(net.weight[0, 0].item() / job.size)
        assert seen == [0.0, -0.5, -0.5], seen
        trainer.kvstore.close()


@check
def several_trainers_and_live_rates(job):
    nets = [scalar_net(), scalar_net()]
    trainers = [
        bireme.Trainer(n, torch.optim.SGD(n.parameters(), lr=1.0), "dist_sync") for n in nets
    ]
    scheduler = torch.optim.lr_scheduler.ExponentialLR(trainers[0].optimizer, 0.5)
    for _ in range(2):
        for net, trainer in zip(nets, trainers, strict=True):
            net.weight.grad = torch.ones(1, 1)
            trainer.step()
        scheduler.step()
    assert [round(net.weight.item(), 5) for net in nets] == [-0.5, -1.0]
    for trainer in trainers:
        trainer.kvstore.close()


@check
def trainers_share_a_store_when_they_update_here(job):
    store = job.store()
    nets = [scalar_net(), scalar_net()]
    trainers = [
        bireme.Trainer(n, torch.optim.SGD(n.parameters(), lr=1.0), store, update_on_kvstore=False)
        for n in nets
    ]
    for net, trainer in zip(nets, trainers, strict=True):
        net.weight.grad = torch.ones(1, 1)
        trainer.step()
    assert [round(net.weight.item(), 5) for net in nets] == [0.0, 0.0]


@check
def trainers_save_and_load(job):
    net = scalar_net()
    trainer = bireme.Trainer(
        net, torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.5), "dist_sync"
    )
    net.weight.grad = torch.ones(1, 1)
    trainer.step()
    if job.rank == 0:
        # One worker alone may look at the state.
        assert trainer.state_dict()["state"][0]["momentum_buffer"].item() == 1
    saved = copy.deepcopy(trainer.state_dict())
    net.weight.grad = torch.ones(1, 1)
    trainer.step()
    assert round(net.weight.item(), 5) == -1.5
    net.load_state_dict({"weight": torch.full((1, 1), 0.0)})
    trainer.load_state_dict(saved)
    net.weight.grad = torch.ones(1, 1)
    trainer.step()
    assert round(net.weight.item(), 5) == -1.5, net.weight
    trainer.kvstore.close()


@check
def trainers_run_here_what_no_server_can(job):
    net = scalar_net()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0)
    trainer = bireme.Trainer(net, optimizer, "dist_sync")

    def closure():
        trainer.zero_grad()
        loss = ((net.weight - job.rank) ** 2).sum()
        loss.backward()
        return loss

    trainer.step(closure)
    mean = sum(range(job.size)) / job.size
    assert abs(net.weight.item() - mean) < abs(1 - mean) + 1e-6
    trainer.kvstore.close()


if __name__ == "__main__":
    check.run()
