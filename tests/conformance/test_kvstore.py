"""One battery for every keyed store. A store joins by one line: its name among its kind."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bireme import kvstore
from bireme.errors import ConfigError, DataError, StateError, UnknownKeyError, UnsupportedError
from bireme.kvstore import KVStore, OptimizerSpec

IN_PROCESS = (
    "local",
    "local_update_cpu",
    "local_allreduce_cpu",
    "device",
    "local_allreduce_device",
    "nccl",
    "allreduce",
    "horovod",
)
"""They take updaters."""

SYNC = ("dist_sync", "dist_sync_device", "dist_local")
"""Over servers, in rounds; made without a launcher, so with a cluster inside the process."""

ASYNC = ("dist_async", "dist_async_device", "dist_bounded", "dist_bounded_device")
"""Over servers that apply each push by an optimizer: without one, nothing can be pushed."""

SHAPE = (4, 4)
KEYS = (5, 7, 11)
NAMES = ("b", "c", "d")
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


@pytest.fixture(params=[*IN_PROCESS, *SYNC])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], KVStore]]:
    made: list[KVStore] = []

    def build() -> KVStore:
        made.append(kvstore.create(request.param))
        return made[-1]

    yield build
    for store in made:
        store.close()


@pytest.fixture
def store(make: Callable[[], KVStore]) -> KVStore:
    return make()


@pytest.fixture(params=[(3, list(KEYS)), ("a", list(NAMES))], ids=["int", "str"])
def keyed(request: pytest.FixtureRequest, store: KVStore):
    """A store whose single and listed keys hold zeros, and those keys."""
    single, listed = request.param
    store.init(single, torch.zeros(SHAPE))
    store.init(listed, [torch.zeros(SHAPE)] * len(listed))
    return store, single, listed


def ones(times: float = 1.0, **options) -> torch.Tensor:
    return torch.full(SHAPE, float(times), **options)


def rows(*numbers: int, fill: float = 1.0, num_rows: int = 4, width: int = 4) -> torch.Tensor:
    content = torch.full((len(numbers), width), float(fill))
    return torch.sparse_coo_tensor(
        [list(numbers)], content, (num_rows, width), check_invariants=True
    )


def negated(value: float) -> torch.Tensor:
    """Return -value everywhere, whose memory holds value: what ``conj()`` gives gradients of."""
    return torch._neg_view(ones(value))


def same(actual, expected) -> bool:
    return torch.equal(actual, expected.to(actual.dtype))


class TestPushAndPull:
    def test_pushed_value_is_pulled(self, keyed):
        store, single, _ = keyed
        store.push(single, ones())
        out = torch.empty(SHAPE)
        assert store.pull(single, out) is None
        assert same(out, ones())

    def test_pushpull_may_be_begun_and_waited_for_later(self, keyed):
        store, _, listed = keyed
        outs = [torch.empty(SHAPE) for _ in listed]
        begun = store.pushpull_async(listed, [ones(2)] * len(listed), outs, priority=-3)
        begun.wait()
        begun.wait()
        assert begun.done
        assert all(same(out, ones(2)) for out in outs)
        value = ones(5)
        store.pushpull_async(listed[0], value).wait()
        assert same(value, ones(5))
        with pytest.raises(ConfigError):
            store.pushpull_async(listed[0], torch.ones(3))

    def test_init_value_is_pulled(self, store):
        store.init(3, ones(4))
        assert same(store.pull(3), ones(4))

    def test_init_after_a_push_is_not_disturbed(self, store):
        store.init("1", torch.zeros(SHAPE))
        store.push("1", [ones()] * 4)
        assert same(store.pull("1"), ones(4))
        store.init("2", torch.zeros(SHAPE))
        assert same(store.pull("2"), ones(0))

    def test_list_of_keys(self, keyed):
        store, _, listed = keyed
        store.push(listed, [ones(4)] * len(listed))
        outs = [torch.empty(SHAPE) for _ in listed]
        store.pull(listed, outs)
        assert all(same(out, ones(4)) for out in outs)

    def test_devices_are_summed_and_pulled_by_each(self, keyed):
        store, single, listed = keyed
        store.push(single, [ones()] * 4)
        outs = [torch.empty(SHAPE) for _ in range(4)]
        store.pull(single, outs)
        assert all(same(out, ones(4)) for out in outs)
        store.push(listed, [[ones(2)] * 4] * len(listed))
        many = [[torch.empty(SHAPE) for _ in range(4)] for _ in listed]
        store.pull(listed, many)
        assert all(same(out, ones(8)) for outs in many for out in outs)

    def test_second_push_replaces_the_first(self, store):
        store.init(0, torch.zeros(SHAPE))
        store.push(0, [ones(), ones()])
        store.push(0, [ones(5)])
        assert same(store.pull(0), ones(5))

    def test_repeated_key_in_one_push_is_summed(self, store):
        store.init(3, torch.zeros(SHAPE))
        store.push([3, 3], [ones(), [ones(), ones()]])
        assert same(store.pull(3), ones(3))

    def test_repeated_key_in_one_pull_fills_every_out(self, store):
        store.init(3, ones(6))
        first, second = torch.empty(SHAPE), torch.empty(SHAPE)
        store.pull([3, 3], [first, second])
        assert same(first, ones(6))
        assert same(second, ones(6))
        assert len(store.pull([3, 3])) == 2

    def test_pulled_copy_is_the_callers(self, store):
        store.init([0, 1], [ones(1), ones(2)])
        copies = store.pull([0, 1])
        copies[0].fill_(9)
        store.pull(0).fill_(9)
        assert same(store.pull(0), ones(1))
        assert same(copies[1], ones(2))

    def test_values_are_copied_not_kept(self, store):
        value = ones()
        store.init(0, value)
        value.fill_(5)
        assert same(store.pull(0), ones(1))
        store.push(0, value)
        value.fill_(7)
        assert same(store.pull(0), ones(5))

    def test_pushpull_out_of_place_and_in_place(self, keyed):
        store, single, listed = keyed
        values, outs = [ones() for _ in range(4)], [torch.empty(SHAPE) for _ in range(4)]
        store.pushpull(single, values, outs)
        assert all(same(out, ones(4)) for out in outs)
        assert all(same(value, ones(1)) for value in values)
        store.pushpull(single, values)
        assert all(same(value, ones(4)) for value in values)
        many = [[ones(2) for _ in range(4)] for _ in listed]
        store.pushpull(listed, many)
        assert all(same(value, ones(8)) for values in many for value in values)

    def test_pushpull_with_one_tensor_pushed_twice(self, store):
        store.init([0, 1], [torch.zeros(SHAPE)] * 2)
        t, u = ones(1), ones(10)
        store.pushpull([0, 1], [[t, u], [t, u]])
        assert same(store.pull(0), ones(11))
        assert same(store.pull(1), ones(11))
        assert same(t, ones(11))

    def test_pushpull_with_outs_that_are_other_keys_values(self, store):
        store.init([0, 1], [torch.zeros(SHAPE)] * 2)
        t, u = ones(1), ones(10)
        store.pushpull([0, 1], [t, u], [u, t])
        assert same(t, ones(10))
        assert same(u, ones(1))

    def test_pushpull_into_shifted_views_of_the_values(self, store):
        store.init(0, torch.zeros(3))
        memory = torch.tensor([1.0, 2.0, 3.0, 4.0])
        store.pushpull(0, memory[:3], memory[1:])
        assert memory.tolist() == [1.0, 1.0, 2.0, 3.0]

    def test_broadcast(self, store):
        out = torch.empty(SHAPE)
        store.broadcast(0, ones(), out)
        assert same(out, ones())
        outs = [torch.empty(SHAPE) for _ in range(3)]
        store.broadcast(1, ones(), outs)
        assert all(same(each, ones()) for each in outs)
        many = [[torch.empty(SHAPE)] * 2 for _ in KEYS]
        store.broadcast(list(KEYS), [ones()] * 3, many)
        assert all(same(each, ones()) for outs in many for each in outs)

    def test_values_and_outs_that_require_grad(self, store):
        store.init(0, torch.nn.Parameter(ones()))
        store.push(0, [ones(2, requires_grad=True), ones(3)])
        weight = torch.nn.Parameter(torch.zeros(SHAPE))
        store.pull(0, weight)
        assert same(weight.detach(), ones(5))
        assert weight.requires_grad
        assert weight.grad_fn is None
        assert not store.pull(0).requires_grad

    def test_pulling_a_tensor_that_backward_needs_is_noticed(self, store):
        store.init(0, ones())
        weight = torch.nn.Parameter(ones(2))
        loss = (weight * weight).sum()
        store.pull(0, weight)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_tensors_that_are_not_contiguous(self, store):
        store.init(0, torch.zeros(3, 2))
        value = torch.arange(6.0).reshape(2, 3).T
        out = torch.zeros(2, 3).T
        store.push(0, [value, value])
        store.pull(0, [out, out])
        assert same(out, 2 * value)
        store.pushpull(0, [value, value])
        assert same(value, 2 * torch.arange(6.0).reshape(2, 3).T)

    def test_tensors_whose_memory_holds_them_negated(self, store):
        store.init([0, 1], [negated(1), torch.zeros(SHAPE)])
        assert same(store.pull(0), ones(-1))
        # Once as ever, once as what has been seen before.
        for value in (2, 3):
            store.push(0, negated(value))
            assert same(store.pull(0), ones(-value))
            store.push(0, [negated(value), ones(1)])
            out, other = negated(0), ones(0)
            store.pull(0, [out, other])
            assert same(out, ones(1 - value))
            assert same(other, ones(1 - value))
            store.pull(0, out)
            assert same(out, ones(1 - value))
            store.pushpull(0, negated(value), out)
            assert same(out, ones(-value))
            store.pushpull(0, out)
            assert same(out, ones(-value))

    def test_the_same_memory_negated_or_not(self, store):
        store.init(0, torch.zeros(SHAPE))
        value = ones(2)
        for _ in range(2):
            for pushed, result in ((value, 2), (torch._neg_view(value), -2)):
                for out in (torch.zeros(SHAPE), negated(0)):
                    store.pushpull(0, pushed, out)
                    assert same(out, ones(result))
                store.push(0, pushed)
                assert same(store.pull(0), ones(result))

    @pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1025, 3), (70_001,)])
    def test_any_shape(self, store, shape):
        store.init(0, torch.zeros(shape))
        values = [torch.randn(shape) for _ in range(3)]
        outs = [torch.empty(shape) for _ in range(2)]
        store.push(0, values)
        store.pull(0, outs)
        expected = values[0] + values[1] + values[2]
        assert all(same(out, expected) for out in outs)

    def test_lists_of_nothing(self, store):
        store.init([], [])
        store.push([], [])
        store.pushpull([], [])
        assert store.pull([]) == []
        assert store.pull([], []) is None


class TestDtypes:
    @pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
    @pytest.mark.parametrize("num_values", [1, 2, 3, 4, 5, 9])
    def test_sum(self, store, dtype, num_values):
        values = [
            torch.randint(0, 9, (37, 5), generator=torch.Generator().manual_seed(seed)).to(dtype)
            for seed in range(num_values)
        ]
        store.init(0, torch.zeros(37, 5, dtype=dtype))
        out = torch.empty(37, 5, dtype=dtype)
        store.pushpull(0, values, out)
        assert torch.equal(out, torch.stack(values).double().sum(0).to(dtype))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_types_are_rounded_once(self, store, dtype):
        # 2048 + 1 + 1 is 2048 when each float16 addition is rounded, and 2050 when the sum is.
        big = {torch.float16: 2048.0, torch.bfloat16: 256.0}[dtype]
        store.init(0, torch.zeros(3, dtype=dtype))
        parts = [torch.full((3,), part, dtype=dtype) for part in (big, 1.0, 1.0)]
        store.push(0, parts)
        assert store.pull(0).tolist() == [big + 2] * 3

    def test_integers_wrap_around(self, store):
        store.init(0, torch.zeros(2, dtype=torch.uint8))
        store.push(0, [torch.full((2,), 200, dtype=torch.uint8)] * 2)
        assert store.pull(0).tolist() == [144, 144]

    @pytest.mark.parametrize("dtype", [torch.bool, torch.complex64], ids=str)
    def test_other_types_are_refused(self, store, dtype):
        with pytest.raises(UnsupportedError, match="cannot hold"):
            store.init(0, torch.zeros(2, dtype=dtype))

    def test_order_of_the_sum_is_the_order_of_the_list(self, store):
        values = [torch.randn(1000) * 10.0**power for power in range(-3, 4)]
        store.init(0, torch.zeros(1000))
        store.push(0, values)
        expected = values[0]
        for value in values[1:]:
            expected = expected + value
        assert torch.equal(store.pull(0), expected)


class TestRowSparse:
    @pytest.mark.parametrize("num_outs", [1, 4])
    @pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
    def test_asked_rows_and_no_others(self, store, num_outs, sparse):
        value = ones()
        store.init("e", value.to_sparse(1) if sparse else value)
        ids = torch.tensor([[3, 1], [1, 3]])
        outs = [torch.zeros(SHAPE).to_sparse(1) for _ in range(num_outs)]
        store.row_sparse_pull("e", outs, ids)
        expected = torch.zeros(SHAPE)
        expected[[1, 3]] = 1
        assert all(same(out.to_dense(), expected) for out in outs)
        assert all(out.coalesce().indices().tolist() == [[1, 3]] for out in outs)

    def test_row_ids_of_each_out(self, store):
        store.init("e", torch.eye(4))
        outs = [rows(0) for _ in range(2)]
        store.row_sparse_pull("e", outs, [torch.tensor([0]), torch.tensor([2, 2])])
        assert same(outs[0].to_dense(), torch.diag(torch.tensor([1.0, 0, 0, 0])))
        assert same(outs[1].to_dense(), torch.diag(torch.tensor([0, 0, 1.0, 0])))

    def test_result_is_returned_without_out(self, store):
        store.init(["e", "f"], [torch.eye(4), torch.ones(2, 2)])
        one = store.row_sparse_pull("e", row_ids=torch.tensor([1]))
        assert one.layout is torch.sparse_coo
        assert same(one.to_dense()[1], torch.eye(4)[1])
        both = store.row_sparse_pull(["e", "f"], row_ids=[torch.tensor([1]), torch.tensor([0])])
        assert same(both[1].to_dense(), torch.tensor([[1.0, 1.0], [0, 0]]))

    def test_no_row_ids_give_zero(self, store):
        store.init("e", ones())
        out = rows(2)
        store.row_sparse_pull("e", out, torch.tensor([], dtype=torch.int64))
        assert same(out.to_dense(), ones(0))

    def test_sum_of_random_row_sparse_values(self, store):
        generator = torch.Generator().manual_seed(3)
        values = []
        for _ in range(4):
            dense = torch.randn(50, 3, generator=generator)
            dense[torch.rand(50, generator=generator) < 0.6] = 0
            values.append(dense.to_sparse(1))
        store.init("r", torch.zeros(50, 3).to_sparse(1))
        store.push("r", values)
        outs = [torch.empty(50, 3) for _ in range(4)]
        store.pull("r", outs)
        total = sum(value.to_dense() for value in values)
        assert torch.allclose(sum(outs), 4 * total, atol=1e-6)
        sparse = torch.zeros(50, 3).to_sparse(1)
        store.row_sparse_pull("r", sparse, torch.arange(50))
        assert torch.allclose(sparse.to_dense(), total, atol=1e-6)

    def test_repeated_rows_within_a_value_are_summed(self, store):
        store.init("r", torch.zeros(SHAPE).to_sparse(1))
        store.push("r", [rows(1, 1, 0), rows(1)])
        assert store.pull("r").to_dense()[:, 0].tolist() == [1, 3, 0, 0]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_rows_are_rounded_once(self, store, dtype):
        big = {torch.float16: 2048.0, torch.bfloat16: 256.0}[dtype]
        store.init("r", torch.zeros(SHAPE, dtype=dtype).to_sparse(1))
        parts = [rows(2, fill=big), rows(2), rows(2), rows(1)]
        store.push("r", [part.to(dtype) for part in parts])
        assert store.pull("r").to_dense()[:, 0].tolist() == [0, 1, big + 2, 0]

    def test_assigning_replaces_the_whole_value(self, store):
        store.init(["r", "d"], [ones().to_sparse(1), ones()])
        store.push(["r", "d"], [rows(1, fill=5), rows(2, fill=6)])
        assert store.pull("r").to_dense()[:, 0].tolist() == [0, 5, 0, 0]
        assert store.pull("d")[:, 0].tolist() == [0, 0, 6, 0]

    def test_dense_and_row_sparse_gradients_of_a_dense_key_mix(self, store):
        store.init("d", torch.zeros(SHAPE))
        store.push("d", [ones(), rows(1, 1), ones()])
        assert store.pull("d")[:, 0].tolist() == [2, 4, 2, 2]

    def test_row_sparse_copy_is_the_callers(self, store):
        store.init("r", rows(1))
        copy = store.pull("r")
        copy.values().fill_(9)
        value = rows(2).coalesce()
        store.push("r", value)
        value.values().fill_(9)
        assert store.pull("r").to_dense()[:, 0].tolist() == [0, 0, 1, 0]

    def test_two_runs_have_equal_bits(self, make):
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(0, 20, (200,), generator=generator)
        values = [
            torch.sparse_coo_tensor(
                ids[None],
                torch.randn(200, 3, generator=generator),
                (20, 3),
                check_invariants=True,
            )
            for _ in range(3)
        ]
        results = []
        for _ in range(2):
            store = make()
            store.init("r", torch.zeros(20, 3))
            store.push("r", values)
            results.append(store.pull("r"))
        assert torch.equal(*results)


@pytest.mark.parametrize("make", IN_PROCESS, indirect=True)
class TestUpdater:
    def test_accumulates(self, keyed):
        store, single, listed = keyed
        seen = []

        def add(key, merged, stored):
            seen.append(key)
            stored += merged

        store.set_updater(add)
        store.push(single, [ones()] * 4)
        assert same(store.pull(single), ones(4))
        for _ in range(4):
            store.push(listed, [[ones()] * 4] * len(listed))
        assert all(same(value, ones(16)) for value in store.pull(listed))
        assert seen == [single, *listed * 4]
        assert {type(key) for key in seen} == {type(single)}

    def test_merged_is_the_updaters_own(self, store):
        store.init(0, ones())
        store.set_updater(lambda key, merged, stored: stored.add_(merged.mul_(2)))
        value = ones(3)
        store.push(0, value)
        assert same(value, ones(3))
        assert same(store.pull(0), ones(7))

    def test_none_goes_back_to_assigning(self, store):
        store.init(0, ones())
        store.set_updater(lambda key, merged, stored: stored.add_(merged))
        store.set_updater(None)
        store.push(0, ones(5))
        assert same(store.pull(0), ones(5))

    @pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
    def test_error_passes_through_and_changes_nothing(self, store, sparse):
        initial = ones().to_sparse(1) if sparse else ones()
        store.init([0, 1], [initial, initial])

        def half_done(key, merged, stored):
            stored.mul_(7)
            if key == 1:
                raise RuntimeError("no")

        store.set_updater(half_done)
        value = rows(1) if sparse else ones()
        with pytest.raises(RuntimeError, match="no"):
            store.push([0, 1], [value, value])
        assert all(same(each.to_dense(), ones()) for each in store.pull([0, 1]))
        store.set_updater(None)
        store.push(0, value)
        assert same(store.pull(0).to_dense(), value.to_dense())

    def test_calling_the_store_is_an_error_not_a_deadlock(self, store):
        store.init([0, 1], [ones(), ones()])
        store.set_updater(lambda key, merged, stored: store.pull(1))
        with pytest.raises(StateError, match="inside its own updater"):
            store.push(0, ones())
        assert same(store.pull(1), ones())

    def test_not_callable(self, store):
        with pytest.raises(ConfigError, match="callable"):
            store.set_updater(3)

    def test_pushpull_applies_it(self, store):
        store.init(0, ones())
        store.set_updater(lambda key, merged, stored: stored.sub_(merged))
        grads, weights = [ones(2), ones(3)], [torch.empty(SHAPE) for _ in range(2)]
        store.pushpull(0, grads, weights)
        assert all(same(weight, ones(-4)) for weight in weights)

    def test_updater_gets_the_row_sparse_sum(self, store):
        seen = []
        store.init(["r", "d"], [torch.zeros(SHAPE).to_sparse(1), torch.zeros(SHAPE)])

        def add(key, merged, stored):
            seen.append(merged.layout)
            stored += merged

        store.set_updater(add)
        for _ in range(2):
            store.push(["r", "d"], [[rows(1)] * 4, [rows(2)] * 4])
        assert seen == [torch.sparse_coo] * 4
        assert store.pull("r").to_dense()[:, 0].tolist() == [0, 8, 0, 0]
        assert store.pull("d")[:, 0].tolist() == [0, 0, 8, 0]


@pytest.mark.parametrize("make", [*SYNC, *ASYNC], indirect=True)
class TestServers:
    def test_no_code_travels_to_them(self, store):
        store.init(0, ones())
        with pytest.raises(UnsupportedError, match="no code travels"):
            store.set_updater(lambda key, merged, stored: stored.add_(merged))
        with pytest.raises(ConfigError, match="callable"):
            store.set_updater(3)
        store.set_updater(None)
        assert same(store.pull(0), ones())

    def test_values_live_elsewhere(self, store):
        assert store.spans_processes
        assert store.meets_in_rounds is (store.type in SYNC)

    def test_sum_of_one_worker(self, store):
        value = ones(3)
        total = store.sum_over_workers("samples", value)
        assert same(total, value)
        assert total is not value


@pytest.mark.parametrize("make", ASYNC, indirect=True)
class TestAsynchronous:
    def test_without_an_optimizer_a_push_is_refused_and_the_servers_live(self, store):
        store.init([0, 1], [ones(), ones().to_sparse(1)])
        for call in (
            lambda: store.push(0, ones(5)),
            lambda: store.pushpull(0, ones(5)),
            lambda: store.push(1, rows(1)),
        ):
            with pytest.raises(StateError, match="call set_optimizer"):
                call()
        assert same(store.pull(0), ones())
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
        store.push([0, 1], [ones(5), rows(1)])
        assert same(store.pull(0), ones(-4))
        store.set_updater(None)
        with pytest.raises(StateError, match="call set_optimizer"):
            store.push(0, ones())

    def test_a_round_that_is_skipped_changes_nothing(self, store):
        store.init([0, 1], [ones(), ones()])
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5, "weight_decay": 0.1}))
        for _ in range(4):
            store.skip_round([0, 1])
        store.wait_all()
        assert same(store.pull(0), ones())
        store.push(0, ones())
        assert same(store.pull(0), ones() - 1.1)
        with pytest.raises(UnknownKeyError):
            store.skip_round(7)

    def test_own_pushes_are_seen(self, store):
        store.init(0, torch.zeros(SHAPE))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
        for number in range(1, 20):
            store.push(0, ones())
            assert same(store.pull(0), ones(-number))


class TestErrors:
    @pytest.fixture
    def filled(self, store):
        store.init([0, 1], [ones(1), ones(2)])
        return store

    @pytest.fixture(autouse=True)
    def nothing_changes(self, filled):
        yield
        assert [value[0, 0].item() for value in filled.pull([0, 1])] == [1, 2]

    def test_a_priority_is_an_integer(self, filled):
        for call in (
            lambda: filled.push(0, ones(2), priority="high"),
            lambda: filled.pull(0, priority=0.5),
            lambda: filled.pushpull(0, ones(2), ones(), priority=None),
            lambda: filled.broadcast(2, ones(), ones(), priority="high"),
            lambda: filled.row_sparse_pull(0, None, torch.tensor([0]), priority=[]),
        ):
            with pytest.raises(ConfigError, match="a priority must be an integer"):
                call()
        filled.init(2, ones())
        filled.push(2, ones(3), priority=-(10**30))
        assert filled.pull(2, priority=True)[0, 0].item() in (3, 3 * filled.num_workers)

    def test_unknown_key(self, filled):
        for call in (
            lambda: filled.push([0, 9], [ones(5), ones(5)]),
            lambda: filled.pull(9),
            lambda: filled.pull([0, 9], [torch.empty(SHAPE)] * 2),
            lambda: filled.pushpull([0, 9], [ones(5), ones(5)]),
            lambda: filled.row_sparse_pull(9, row_ids=torch.tensor([0])),
        ):
            with pytest.raises(UnknownKeyError, match=r"key 9 .*init"):
                call()

    def test_key_initialised_twice(self, filled):
        with pytest.raises(StateError, match="already"):
            filled.init(0, ones(5))
        with pytest.raises(StateError, match="already"):
            filled.init([7, 1], [ones(5), ones(5)])
        with pytest.raises(StateError, match="twice in one call"):
            filled.init([8, 8], [ones(5), ones(5)])
        with pytest.raises(StateError, match="already"):
            filled.broadcast(0, ones(5), torch.empty(SHAPE))
        for key in (7, 8):
            with pytest.raises(UnknownKeyError):
                filled.pull(key)

    def test_kinds_of_keys_do_not_mix(self, filled):
        for call in (
            lambda: filled.init("a", ones()),
            lambda: filled.push("0", ones()),
            lambda: filled.pull("0"),
            lambda: filled.row_sparse_pull("0", row_ids=torch.tensor([0])),
            lambda: filled.push([0, "1"], [ones(), ones()]),
        ):
            with pytest.raises(ConfigError, match="integer"):
                call()

    @pytest.mark.parametrize("key", [True, 1.0, None, b"0", (0, True), torch.tensor(0)])
    def test_no_key(self, filled, key):
        with pytest.raises(ConfigError):
            filled.push(key, ones(5))

    def test_shape_and_dtype(self, filled):
        with pytest.raises(ConfigError, match=r"shape \(4, 3\).*\(4, 4\)"):
            filled.push([0, 1], [ones(5), torch.ones(4, 3)])
        with pytest.raises(ConfigError, match="float64"):
            filled.push(0, [ones(5), ones(5).double()])
        with pytest.raises(ConfigError, match="shape"):
            filled.pull(0, torch.empty(16))
        with pytest.raises(ConfigError, match="float16"):
            filled.pushpull(0, ones(5), torch.empty(SHAPE, dtype=torch.float16))
        with pytest.raises(ConfigError, match="shape"):
            filled.broadcast(5, ones(), torch.empty(3))
        with pytest.raises(UnknownKeyError):
            filled.pull(5)

    def test_expanded_out(self, filled):
        fine = torch.zeros(SHAPE)
        with pytest.raises(ConfigError, match="expanded"):
            filled.pushpull([0, 1], [ones(5), ones(5)], [fine, torch.zeros(4, 1).expand(4, 4)])
        assert same(fine, ones(0))

    def test_numbers_of_values(self, filled):
        with pytest.raises(ConfigError, match="2 keys, got 1 items"):
            filled.push([0, 1], [ones(5)])
        with pytest.raises(ConfigError, match="2 keys"):
            filled.push([0, 1], ones(5))
        with pytest.raises(ConfigError, match="empty list"):
            filled.push(0, [])
        with pytest.raises(ConfigError, match="empty list"):
            filled.pull([0, 1], [[], torch.empty(SHAPE)])
        with pytest.raises(ConfigError, match="tensor"):
            filled.push(0, [ones(5), 3])
        with pytest.raises(ConfigError, match="tensor"):
            filled.push(0, 1.5)
        with pytest.raises(ConfigError, match="one value"):
            filled.init(5, [ones(), ones()])
        with pytest.raises(ConfigError, match="empty"):
            filled.push([], [ones()])

    def test_pull_into_a_sparse_out(self, filled):
        out = rows(1, fill=2)
        with pytest.raises(ConfigError, match="row_sparse_pull"):
            filled.pull(0, out)
        with pytest.raises(ConfigError, match="row_sparse_pull"):
            filled.pushpull(0, rows(1, fill=9))
        assert out.to_dense()[1, 0] == 2

    def test_row_sparse_pull(self, filled):
        with pytest.raises(ConfigError, match="use pull"):
            filled.row_sparse_pull(0, torch.empty(SHAPE), torch.tensor([0]))
        with pytest.raises(ConfigError, match="row_ids"):
            filled.row_sparse_pull(0, rows(1))
        for bad in (-1, 4):
            with pytest.raises(ConfigError, match="4 rows"):
                filled.row_sparse_pull(0, rows(1), torch.tensor([0, bad]))
        with pytest.raises(ConfigError, match="integers"):
            filled.row_sparse_pull(0, rows(1), torch.tensor([0.0]))
        with pytest.raises(ConfigError, match="2 row_ids for 3 outs"):
            filled.row_sparse_pull(0, [rows(1)] * 3, [torch.tensor([0])] * 2)

    @pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
    def test_layouts(self, filled):
        with pytest.raises(UnsupportedError, match="sparse dimension"):
            filled.push(0, ones(5).to_sparse())
        with pytest.raises(UnsupportedError, match="layout"):
            filled.push(0, ones(5).to_sparse_csr())
        with pytest.raises(UnsupportedError, match="meta"):
            filled.push(0, torch.empty(SHAPE, device="meta"))
        filled.init(5, rows(1))
        with pytest.raises(ConfigError, match="row-sparse"):
            filled.push(5, ones(5))

    def test_unknown_capability(self, filled):
        with pytest.raises(ConfigError, match="capability"):
            filled.is_capable("x")

    def test_no_optimizer(self, filled, tmp_path):
        with pytest.raises(StateError, match="set_optimizer"):
            filled.save_optimizer_states(str(tmp_path / "states"))
        with pytest.raises(ConfigError, match=r"torch\.optim"):
            filled.set_optimizer("sgd")


@pytest.mark.parametrize("make", [*IN_PROCESS, *SYNC, *ASYNC], indirect=True)
class TestLife:
    def test_who_it_is(self, make, request):
        store = make()
        assert store.type == request.node.callspec.params["make"]
        assert (store.rank, store.num_workers, store.num_dead_nodes()) == (0, 1, 0)
        assert store.is_capable("optimizer")
        assert store.is_capable("OPTIMIZER")
        store.barrier()
        store.wait_all()

    def test_closed(self, store):
        store.init(0, ones())
        with store as same_store:
            assert same_store is store
        store.close()
        for call in (
            lambda: store.init(1, ones()),
            lambda: store.push(0, ones()),
            lambda: store.pull(0),
            lambda: store.pushpull(0, ones()),
            lambda: store.broadcast(1, ones(), ones()),
            lambda: store.row_sparse_pull(0, row_ids=torch.tensor([0])),
            lambda: store.set_updater(None),
            lambda: store.set_optimizer(OptimizerSpec("sgd")),
            store.barrier,
            store.wait_all,
        ):
            with pytest.raises(StateError, match="closed"):
                call()

    def test_two_stores_share_nothing(self, make):
        first, second = make(), make()
        first.init(0, ones(1))
        second.init("0", ones(2))
        assert same(first.pull(0), ones(1))
        assert same(second.pull("0"), ones(2))


class TestThreads:
    @pytest.fixture(autouse=True)
    def few_threads(self):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)

    def test_no_push_is_lost(self, store):
        store.init(list(range(4)), [torch.zeros(100)] * 4)
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0}))
        start = threading.Barrier(4)

        def work(seed: int) -> None:
            start.wait()
            # Every thread names the keys in another order, which must not lock them up.
            keys = list(itertools.permutations(range(4)))[seed * 5]
            for _ in range(25):
                store.push(list(keys), [torch.ones(100)] * 4)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert all(
            torch.equal(value, torch.full((100,), -100.0)) for value in store.pull([0, 1, 2])
        )

    def test_a_pull_sees_the_push_before_it_and_never_half_of_one(self, store):
        store.init(0, torch.zeros(200_000))
        pushed = threading.Event()
        seen: list[torch.Tensor] = []

        def read() -> None:
            pushed.wait()
            seen.extend(store.pull(0) for _ in range(20))

        reader = threading.Thread(target=read)
        reader.start()
        for round_number in range(1, 41):
            store.push(0, [torch.full((200_000,), float(round_number))] * 2)
            pushed.set()
        reader.join()
        numbers = [value[0].item() for value in seen]
        assert numbers == sorted(numbers)
        assert numbers[0] >= 2
        assert all(torch.equal(value, value[0].expand(200_000)) for value in seen)

    def test_one_init_wins(self, store):
        start = threading.Barrier(4)

        def attempt(number: int) -> bool:
            start.wait()
            try:
                store.init(0, torch.full((1000,), float(number)))
            except StateError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            won = list(pool.map(attempt, range(4)))
        assert won.count(True) == 1
        assert store.pull(0)[0].item() == won.index(True)


DENSE = ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam")
DENSE += ("RAdam", "RMSprop", "Rprop", "SGD")
EXTRA = {"SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, "Adam": {"amsgrad": True}}


@pytest.mark.parametrize("make", [*IN_PROCESS, *SYNC, *ASYNC], indirect=True)
class TestOptimizer:
    @pytest.mark.parametrize("name", DENSE)
    def test_equals_plain_torch_after_five_steps(self, store, name):
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(6, 5, generator=generator) for _ in range(2)]
        params = {"lr": 0.01, **EXTRA.get(name, {})}
        store.init([0, 1], weights)
        store.set_optimizer(OptimizerSpec(name, params))
        expected = [torch.nn.Parameter(weight.clone()) for weight in weights]
        optimizers = [getattr(torch.optim, name)([weight], **params) for weight in expected]
        for _ in range(5):
            halves = [torch.randn(2, 6, 5, generator=generator) for _ in range(2)]
            store.push([0, 1], [list(half) for half in halves])
            for weight, optimizer, half in zip(expected, optimizers, halves, strict=True):
                weight.grad = half[0] + half[1]
                optimizer.step()
        assert torch.equal(store.pull(0), expected[0].detach())
        assert torch.equal(store.pull(1), expected[1].detach())

    # Some torch optimizers make sparse tensors without saying whether to check them.
    @pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
    @pytest.mark.parametrize("name", ["SGD", "SparseAdam", "Adagrad"])
    def test_row_sparse_gradients_equal_plain_torch(self, store, name):
        weight = torch.nn.Parameter(torch.ones(SHAPE))
        store.init("w", weight)
        store.set_optimizer(OptimizerSpec(name, {"lr": 0.1}))
        optimizer = getattr(torch.optim, name)([weight], lr=0.1)
        for step in range(5):
            store.push("w", [rows(step % 3), rows(1, fill=2)])
            weight.grad = (rows(step % 3) + rows(1, fill=2)).coalesce()
            optimizer.step()
        assert torch.allclose(store.pull("w"), weight.detach())

    def test_torch_optimizer_is_read_live(self, store):
        weight = torch.nn.Parameter(torch.zeros(SHAPE))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1)
        store.init(0, weight)
        store.set_optimizer(optimizer)
        store.push(0, ones())
        assert same(store.pull(0), ones(-1.0))
        optimizer.step()
        scheduler.step()
        store.push(0, ones())
        assert torch.allclose(store.pull(0), ones(-1.1))

    def test_numbers_change_and_state_stays(self, store):
        store.init(0, ones(0))
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
        store.push(0, ones())
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 0.1, "momentum": 0.5}))
        store.push(0, ones())
        assert torch.allclose(store.pull(0), ones(-1.15))
        store.set_updater(None)
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
        store.push(0, ones())
        assert torch.allclose(store.pull(0), ones(-2.15))

    def test_multipliers_and_groups(self, store):
        store.init(["a", "b", "c"], [ones()] * 3)
        spec = OptimizerSpec(
            "sgd",
            {"lr": 0.5, "weight_decay": 0.5},
            lr_mult={"a": 0.0},
            wd_mult={"b": 0.0},
            groups={"c": {"lr": 1.0}},
            rescale_grad=0.5,
        )
        store.set_optimizer(spec)
        store.push(["a", "b", "c"], [[ones(), ones()]] * 3)
        assert [value[0, 0].item() for value in store.pull(["a", "b", "c"])] == [1.0, 0.5, -0.5]

    def test_what_it_cannot_do_changes_nothing(self, store):
        store.init([0, 1, 2], [ones(), ones(), torch.ones(3, dtype=torch.int32)])
        store.set_optimizer(OptimizerSpec("adam"))
        with pytest.raises(UnsupportedError, match="row-sparse"):
            store.push([0, 1], [ones(), rows(1)])
        with pytest.raises(ConfigError, match="int32"):
            store.push([0, 2], [ones(), torch.ones(3, dtype=torch.int32)])
        store.set_optimizer(OptimizerSpec("sparseadam"))
        with pytest.raises(UnsupportedError, match="dense"):
            store.push(0, ones())
        store.set_updater(None)
        store.set_optimizer(OptimizerSpec("rmsprop"))
        assert all(same(value, ones()) for value in store.pull([0, 1]))
        store.push(0, ones())
        before = store.pull(0)
        with pytest.raises(UnsupportedError, match="keep its state"):
            store.set_optimizer(OptimizerSpec("rmsprop", {"momentum": 0.9}))
        assert same(store.pull(0), before)

    def test_bad_live_number(self, store):
        optimizer = torch.optim.SGD([torch.nn.Parameter(ones())], lr=0.5)
        store.init(0, ones())
        store.set_optimizer(optimizer)
        optimizer.param_groups[0]["lr"] = float("nan")
        with pytest.raises(ConfigError, match="lr must be finite"):
            store.push(0, ones())
        assert same(store.pull(0), ones())

    @pytest.mark.parametrize("name", [*DENSE, "SparseAdam"])
    def test_saved_state_goes_on_as_if_never_stopped(self, make, name, tmp_path):
        grad = rows(1, 3, fill=0.5) if name == "SparseAdam" else ones(0.5)
        path = str(tmp_path / "states")
        spec = OptimizerSpec(name, {"lr": 0.01, **EXTRA.get(name, {})})
        first = make()
        first.init("w", ones())
        first.set_optimizer(spec)
        for _ in range(3):
            first.push("w", grad)
        first.save_optimizer_states(path)
        second = make()
        second.init("w", first.pull("w"))
        second.set_optimizer(spec)
        second.load_optimizer_states(path)
        for store in (first, second):
            store.push("w", grad)
        assert torch.equal(first.pull("w"), second.pull("w"))

    def test_states_are_copies_and_come_back(self, store):
        store.init(["a", "b"], [ones(), torch.zeros(3)])
        with pytest.raises(StateError, match="set_optimizer"):
            store.optimizer_states()
        store.set_optimizer(OptimizerSpec("adam", {"lr": 0.1}))
        store.push("a", ones())
        kept = store.optimizer_states()
        assert list(kept) == ["a"]
        assert kept["a"]["exp_avg"].shape == SHAPE
        store.push("a", ones())
        assert store.optimizer_states()["a"]["step"].item() == 2
        assert kept["a"]["step"].item() == 1
        store.set_optimizer_states(kept)
        assert store.optimizer_states()["a"]["step"].item() == 1
        for wrong in ({"x": {}}, {"a": {"exp_avg": torch.zeros(7)}}):
            with pytest.raises(ConfigError):
                store.set_optimizer_states(wrong)
        assert store.optimizer_states()["a"]["step"].item() == 1
        store.set_optimizer_states({})
        assert store.optimizer_states() == {}

    def test_overwriting_keeps_the_state(self, store):
        store.init(["a", "b"], [ones(), ones().to_sparse(1)])
        store.set_optimizer(OptimizerSpec("sgd", {"lr": 1.0, "momentum": 0.5}))
        store.push("a", ones())
        shown = store.pull("a")
        store.overwrite(["a", "b"], [ones(7), rows(2, fill=5)])
        assert same(shown, ones(0))
        assert same(store.pull("a"), ones(7))
        assert store.pull("b").to_dense()[:, 0].tolist() == [0, 0, 5, 0]
        store.push("a", ones())
        assert same(store.pull("a"), ones(5.5))
        with pytest.raises(ConfigError, match="overwritten by one value"):
            store.overwrite("a", [ones(), ones()])
        with pytest.raises(ConfigError, match="shape"):
            store.overwrite("a", torch.zeros(2))

    def test_files_of_all_stores_are_alike(self, make, tmp_path):
        generator = torch.Generator().manual_seed(5)
        grads = [torch.randn(2, 40, 30, generator=generator) for _ in range(4)]
        spec = OptimizerSpec("adam", {"lr": 0.1})
        local, mine = kvstore.create("local"), make()
        for store in (local, mine):
            store.init(["a", "b"], [torch.ones(40, 30)] * 2)
            store.set_optimizer(spec)
            for grad in grads[:2]:
                store.push(["a", "b"], list(grad))
            store.save_optimizer_states(str(tmp_path / store.type))
        crossed = {local: tmp_path / mine.type, mine: tmp_path / "local"}
        for store, path in crossed.items():
            store.load_optimizer_states(str(path))
            for grad in grads[2:]:
                store.push(["a", "b"], list(grad))
        assert torch.equal(local.pull("a"), mine.pull("a"))
        assert torch.equal(local.pull("b"), mine.pull("b"))
        local.close()

    def test_files_that_do_not_fit(self, store, tmp_path):
        store.init("a", ones())
        store.set_optimizer(OptimizerSpec("adam"))
        store.push("a", ones())
        (tmp_path / "junk").write_bytes(b"junk")
        with pytest.raises(DataError):
            store.load_optimizer_states(str(tmp_path / "junk"))
        with pytest.raises(FileNotFoundError):
            store.load_optimizer_states(str(tmp_path / "missing"))
        with pytest.raises(OSError, match="No such file"):
            store.save_optimizer_states(str(tmp_path / "no" / "folder"))
        assert store.optimizer_states()["a"]["step"].item() == 1
