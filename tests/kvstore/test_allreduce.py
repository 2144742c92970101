"""The allreduce store of several workers: sums over them, copies that stay equal."""

import copy

import pytest
import torch
from tests.collective.ranks import on_ranks, started

import bireme
from bireme.errors import ConfigError, MismatchError, RankLost, StateError, UnsupportedError
from bireme.kvstore.allreduce import AllreduceStore


@pytest.fixture(scope="module")
def engines():
    with started(2) as engines:
        yield engines


@pytest.fixture
def stores(engines):
    stores = [AllreduceStore("allreduce", engine, 1) for engine in engines]
    yield stores
    for store in stores:
        store.close()


def everywhere(stores, action):
    return on_ranks(len(stores), lambda rank: action(stores[rank], rank))


def test_who_it_is(stores):
    for rank, store in enumerate(stores):
        assert (store.type, store.rank, store.num_workers) == ("allreduce", rank, 2)
        assert store.spans_processes
        assert not store.updates_elsewhere
        assert store.meets_in_rounds


def test_rank_0s_first_value_wins_and_pushes_are_summed(stores):
    def run(store, rank):
        store.init(["a", "b"], [torch.full((2,), float(rank)), torch.full((3, 1), 7.0 + rank)])
        first = store.pull(["a", "b"])
        # In another order on every worker.
        keys, values = ["a", "b"], [torch.ones(2), torch.ones(3, 1)]
        order = slice(None, None, -1 if rank else 1)
        store.push(keys[order], values[order])
        return first, store.pull(["a", "b"])

    for first, later in everywhere(stores, run):
        assert first[0].tolist() == [0.0, 0.0]
        assert first[1].tolist() == [[7.0]] * 3
        assert later[0].tolist() == [2.0, 2.0]
        assert later[1].tolist() == [[2.0]] * 3


def test_broadcast_overwrite_and_pushpull(stores):
    def run(store, rank):
        out = torch.empty(2)
        store.broadcast("a", torch.full((2,), 5.0 + rank), out)
        values = [torch.full((2,), 1.0 + rank), torch.full((2,), 10.0)]
        store.pushpull("a", values)
        store.overwrite("a", torch.full((2,), 3.0 * rank))
        return out.tolist(), [value.tolist() for value in values], store.pull("a").tolist()

    for out, values, now in everywhere(stores, run):
        assert out == [5.0, 5.0]
        assert values == [[23.0, 23.0]] * 2
        assert now == [0.0, 0.0]


def test_pushpulls_begun_together_are_exchanged_in_the_background(stores):
    keys = [f"k{number}" for number in range(8)]

    def run(store, rank):
        store.init(keys, [torch.zeros(5)] * 8)
        values = {key: torch.full((5,), number + rank + 0.5) for number, key in enumerate(keys)}
        ordered = keys if rank else list(reversed(keys))
        begun = {key: store.pushpull_async(key, values[key]) for key in ordered}
        again = store.pushpull_async("k0", torch.ones(5))
        again.wait()
        store.wait_all()
        for pending in begun.values():
            pending.wait()
        return [values[key][0].item() for key in keys], store.pull("k0")[0].item()

    for values, last in everywhere(stores, run):
        assert values == [2.0 * number + 2 for number in range(8)]
        assert last == 2.0


def test_optimizers_run_on_every_copy_alike(stores):
    def run(store, rank):
        store.init("w", torch.ones(4))
        store.set_optimizer(bireme.OptimizerSpec("SGD", {"lr": 0.1, "momentum": 0.9}))
        for _ in range(3):
            store.push("w", torch.full((4,), 1.0 + rank))
        return store.pull("w")

    one, two = everywhere(stores, run)
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    for _ in range(3):
        weight.grad = torch.full((4,), 3.0)
        optimizer.step()
    assert torch.equal(one, two)
    torch.testing.assert_close(one, weight.detach())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
def test_row_sparse_gradients(stores, sparse):
    def run(store, rank):
        first = torch.eye(4) * (rank + 1)
        store.init("e", first.to_sparse(1) if sparse else first)
        start = store.row_sparse_pull("e", row_ids=torch.arange(4)).to_dense()
        rows = torch.sparse_coo_tensor([[rank, 3]], torch.ones(2, 4), (4, 4), check_invariants=True)
        store.push("e", [rows, rows])
        return start, store.row_sparse_pull("e", row_ids=torch.arange(4)).to_dense()

    expected = torch.tensor([2.0, 2.0, 0.0, 4.0])[:, None].expand(4, 4)
    for start, later in everywhere(stores, run):
        assert torch.equal(start, torch.eye(4))
        assert torch.equal(later, expected)


def test_small_agreements_barriers_and_refusals(stores):
    def run(store, rank):
        store.barrier()
        with pytest.raises(UnsupportedError, match="2bit cannot be added"):
            store.set_gradient_compression({"type": "2bit"})
        store.set_gradient_compression(None)
        store.init("x", torch.zeros(2))
        with pytest.raises(StateError, match="initialised already"):
            store.init("x", torch.zeros(2))
        with pytest.raises(ConfigError):
            store.push("x", torch.zeros(3))
        assert store.num_dead_nodes() == 0
        return store.sum_over_workers("samples", torch.tensor([1.0 + rank]))

    assert [total.item() for total in everywhere(stores, run)] == [3.0, 3.0]


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_sums_over_workers_travel_in_16_bits(stores, kind):
    code = {"fp16": torch.float16, "bf16": torch.bfloat16}[kind]
    third = torch.full((3,), 1 / 3)

    def run(store, rank):
        store.init(["w", "s"], [third, torch.zeros(3, 2)])
        exact = store.pull("w")
        store.set_gradient_compression({"type": kind})
        # A worker's devices are added before.
        store.push("w", [third, third])
        pushed = store.pull("w")
        value = third.clone()
        store.pushpull_async("w", value).wait()
        both = third.clone()
        store.pushpull("w", both)
        store.init("n", torch.zeros(2, dtype=torch.int64))
        with pytest.raises(UnsupportedError, match="int64"):
            store.pushpull_async("n", torch.ones(2, dtype=torch.int64))
        rows = torch.sparse_coo_tensor(
            [[1]], torch.full((1, 2), 1 / 3), (3, 2), check_invariants=True
        )
        store.push("s", rows)
        store.set_gradient_compression(None)
        plain = third.clone()
        store.pushpull("w", plain)
        return exact, pushed, value, both, store.pull("s")[1, 0], plain

    once, twice = ((third * n).to(code).float() * 2 for n in (1, 2))
    for exact, pushed, value, both, row, plain in everywhere(stores, run):
        assert torch.equal(exact, third)
        assert torch.equal(pushed, twice)
        assert torch.equal(value, once)
        assert torch.equal(both, once)
        assert row == torch.tensor(1 / 3) * 2
        assert torch.equal(plain, third * 2)


def test_workers_that_cast_differently_are_all_told(stores):
    def run(store, rank):
        store.init("w", torch.zeros(3))
        store.set_gradient_compression({"type": "fp16"} if rank else None)
        with pytest.raises(MismatchError, match="float16"):
            store.push("w", torch.ones(3))
        store.set_gradient_compression(None)
        store.push("w", torch.ones(3))
        return store.pull("w").tolist()

    assert everywhere(stores, run) == [[2.0] * 3] * 2


def test_tensors_that_are_not_contiguous(stores):
    def run(store, rank):
        store.init("t", torch.zeros(2, 3).t())
        value = (torch.arange(6.0).reshape(2, 3) + rank).t()
        store.pushpull("t", value)
        return value, store.pull("t")

    expected = 2 * torch.arange(6.0).reshape(2, 3).t() + 1
    for value, pulled in everywhere(stores, run):
        assert torch.equal(value, expected)
        assert torch.equal(pulled, expected)


def test_a_lost_worker_is_an_error():
    with started(2) as engines:
        store = AllreduceStore("allreduce", engines[0], 1)
        engines[1]._channel.close()
        with pytest.raises(RankLost, match="rank 1"):
            store.barrier()
        store.close()


# Made once: threads that seed torch's generator disturb each other.
torch.manual_seed(3)
MODEL = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()


def train(make, batches, kvstore, **options):
    """Return the parameters after a step on each batch."""
    net = copy.deepcopy(MODEL)
    trainer = bireme.Trainer(net, make(net.parameters()), kvstore=kvstore, **options)
    for inputs, targets in batches:
        trainer.zero_grad()
        if options.get("overlap"):
            trainer.begin(len(inputs))
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        trainer.step(len(inputs))
    return [param.detach() for param in net.parameters()]


@pytest.mark.parametrize("options", [{}, {"overlap": True}, {"update_on_kvstore": True}], ids=str)
def test_unequal_parts_train_as_one_process_does(stores, options):
    generator = torch.Generator().manual_seed(1)
    whole = [
        (
            torch.randn(10, 6, generator=generator, dtype=torch.float64),
            torch.randint(0, 3, (10,), generator=generator),
        )
        for _ in range(4)
    ]

    def make(params):
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)

    expected = train(make, whole, None)
    cuts = [slice(0, 3), slice(3, 10)]

    def run(store, rank):
        parts = [(inputs[cuts[rank]], targets[cuts[rank]]) for inputs, targets in whole]
        return train(make, parts, store, **options)

    for params in everywhere(stores, run):
        for ours, theirs in zip(params, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
