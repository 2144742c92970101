"""Engines of several ranks: exact values, any order, errors alike, and nothing left waiting."""

import json
import threading

import pytest
import torch
from tests.collective.ranks import LIMIT_S, on_ranks, started

from bireme.collective import Topology, start
from bireme.collective.checks import DTYPES
from bireme.errors import (
    CollectiveError,
    ConfigError,
    EngineClosed,
    MismatchError,
    WaitTimeout,
)
from bireme.types import ReduceOp

SUM = ReduceOp.SUM


BACKENDS = ["gloo", "bireme"]


@pytest.fixture(scope="module", params=BACKENDS)
def pair(request):
    with started(2, cpu_backend=request.param) as engines:
        yield engines


@pytest.fixture(scope="module", params=BACKENDS)
def trio(request):
    with started(3, cpu_backend=request.param) as engines:
        yield engines


def both(engines, action):
    """Do something on every rank and return the results; ``action(engine, rank)`` gives handles."""
    return on_ranks(len(engines), lambda rank: action(engines[rank], rank).wait(LIMIT_S))


def value(dtype, rank, shape=(5, 3)):
    """Return a tensor whose sum and product over three ranks are exact in every type."""
    numbers = torch.arange(15).reshape(shape) % 4 + rank
    return numbers.to(dtype)


REDUCTIONS = {
    ReduceOp.SUM: lambda stacked: stacked.sum(0),
    ReduceOp.MIN: lambda stacked: stacked.amin(0),
    ReduceOp.MAX: lambda stacked: stacked.amax(0),
    ReduceOp.PRODUCT: lambda stacked: stacked.prod(0),
}


@pytest.mark.parametrize("op", list(REDUCTIONS), ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
def test_allreduce_of_every_dtype(trio, dtype, op):
    if dtype.is_complex and op is not SUM:
        with pytest.raises(ConfigError, match="complex"):
            trio[0].allreduce([value(dtype, 0)], names=["a"], op=op)
        return
    results = both(
        trio, lambda engine, rank: engine.allreduce([value(dtype, rank)], names=["a"], op=op)
    )
    wide = torch.complex128 if dtype.is_complex else torch.int64
    if dtype is torch.bool:
        op = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op)
    stacked = torch.stack([value(dtype, rank).to(wide) for rank in range(3)])
    for (result,) in results:
        assert result.dtype is dtype
        assert torch.equal(result, REDUCTIONS[op](stacked).to(dtype))


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
def test_everything_that_moves_takes_every_dtype(trio, dtype):
    def gather(engine, rank):
        return engine.allgather([value(dtype, rank)[: rank + 1]], names=["g"])

    expected = torch.cat([value(dtype, rank)[: rank + 1] for rank in range(3)])
    assert all(torch.equal(result, expected) for (result,) in both(trio, gather))

    def send(engine, rank):
        return engine.broadcast(value(dtype, rank), 2, name="b")

    assert all(torch.equal(result, value(dtype, 2)) for result in both(trio, send))

    def exchange(engine, rank):
        splits = torch.tensor([1, rank, 2], dtype=torch.int32)
        return engine.alltoall(value(dtype, rank), splits, name="t")

    for receiver, (result, rows) in enumerate(both(trio, exchange)):
        starts = [(0, 1, 1 + rank)[receiver] for rank in range(3)]
        sizes = [(1, rank, 2)[receiver] for rank in range(3)]
        parts = [value(dtype, rank)[starts[rank] : starts[rank] + sizes[rank]] for rank in range(3)]
        assert torch.equal(result, torch.cat(parts))
        assert rows.tolist() == sizes


@pytest.mark.parametrize(
    "dtype", [torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64], ids=str
)
@pytest.mark.parametrize("op", [SUM, ReduceOp.AVERAGE], ids=lambda op: op.name)
def test_reducescatter_deals_rows_and_the_remainder(trio, dtype, op):
    results = both(
        trio, lambda engine, rank: engine.reducescatter([value(dtype, rank)], names=["r"], op=op)
    )
    total = torch.stack([value(torch.int64, rank) for rank in range(3)]).sum(0)
    if op is ReduceOp.AVERAGE:
        total = total.double() / 3
    parts = total.split([2, 2, 1])
    for rank, (result,) in enumerate(results):
        assert result.dtype is dtype
        torch.testing.assert_close(result, parts[rank].to(dtype))


def test_a_reducescatter_scales(pair):
    results = both(
        pair,
        lambda engine, rank: engine.reducescatter(
            [torch.ones(3)], names=["r"], op=SUM, prescale=3.0, postscale=0.5
        ),
    )
    assert [result.tolist() for (result,) in results] == [[3.0, 3.0], [3.0]]


def test_scales_and_averages_of_integers_are_truncated(pair):
    results = both(
        pair,
        lambda engine, rank: engine.allreduce(
            [torch.tensor([5, -5]), torch.tensor([1.0, 2.0])],
            names=["i", "f"],
            op=ReduceOp.AVERAGE,
            prescale=0.5,
        ),
    )
    assert results[0][0].tolist() == results[1][0].tolist() == [2, -2]
    assert results[0][1].tolist() == [0.5, 1.0]


def test_many_tensors_in_opposite_orders_fuse_and_come_out_right(pair):
    names = [f"layer{number}" for number in range(40)]

    def submit(rank):
        handles = {}
        for name in names if rank else reversed(names):
            number = int(name[5:])
            dtype = torch.float32 if number % 3 else torch.float64
            tensor = torch.full((number, 2), number + rank, dtype=dtype)
            handles[name] = pair[rank].allreduce([tensor], names=[name], op=SUM)
        return [handles[name].wait(LIMIT_S)[0] for name in names]

    for _ in range(3):
        results = on_ranks(2, submit)
        for number, (one, two) in enumerate(zip(*results, strict=True)):
            assert torch.equal(one, two)
            assert torch.equal(one.float(), torch.full((number, 2), 2.0 * number + 1))


def test_results_go_where_the_caller_wants_them(pair):
    tensors = [[torch.nn.Parameter(torch.ones(2) * rank) for _ in range(3)] for rank in range(2)]

    def submit(engine, rank):
        mine = tensors[rank]
        names = [f"p{number}" for number in range(3)]
        return engine.allreduce(mine, names=names, outs=mine, op=SUM)

    results = both(pair, submit)
    for rank in range(2):
        assert all(one is two for one, two in zip(results[rank], tensors[rank], strict=True))
        assert all(each.tolist() == [1.0, 1.0] for each in tensors[rank])
    targets = [torch.zeros(2), torch.zeros(2)]
    results = both(
        pair,
        lambda engine, rank: engine.broadcast(torch.ones(2), 0, name="b", out=targets[rank]),
    )
    assert results[1] is targets[1]
    assert targets[1].tolist() == [1.0, 1.0]


def test_scalars_and_empty_tensors(pair):
    results = both(
        pair,
        lambda engine, rank: engine.allreduce(
            [torch.tensor(2.0), torch.empty(0, 3)], names=["s", "e"], op=SUM
        ),
    )
    assert results[0][0].item() == 4.0
    assert results[0][1].shape == (0, 3)
    results = both(pair, lambda engine, rank: engine.allgather([torch.ones(rank, 2)], names=["g"]))
    assert results[0][0].shape == (1, 2)
    assert both(pair, lambda e, r: e.allgather([torch.ones(0, 2)], names=["g"]))[0][0].shape == (
        0,
        2,
    )
    assert both(pair, lambda e, r: e.broadcast(torch.ones(0), 0, name="b"))[0].shape == (0,)
    output, rows = both(pair, lambda e, r: e.alltoall(torch.ones(0, 2), None, name="t"))[0]
    assert (output.shape, rows.tolist()) == ((0, 2), [0, 0])
    (part,) = both(pair, lambda e, r: e.reducescatter([torch.ones(0, 2)], names=["r"]))[0]
    assert part.shape == (0, 2)


@pytest.mark.parametrize(
    "submit",
    [
        lambda e, r: e.allreduce([torch.ones(2 + r)], names=["m"]),
        lambda e, r: e.allreduce([torch.ones(2, dtype=[torch.int32, torch.int64][r])], names=["m"]),
        lambda e, r: e.allreduce([torch.ones(2)], names=["m"], op=ReduceOp(1 + 2 * r)),
        lambda e, r: e.allreduce([torch.ones(2)], names=["m"], prescale=1.0 + r),
        lambda e, r: e.broadcast(torch.ones(2), r, name="m"),
        lambda e, r: e.allgather([torch.ones(2, 2 + r)], names=["m"]),
        lambda e, r: e.allgather([torch.tensor(1.0)], names=["m"]),
        lambda e, r: e.reducescatter([torch.ones(2)], names=["m"], op=ReduceOp.MAX),
        lambda e, r: (
            e.allreduce([torch.ones(2)], names=["m"])
            if r
            else e.broadcast(torch.ones(2), 0, name="m")
        ),
    ],
    ids=["shape", "dtype", "op", "scale", "root", "columns", "scalar", "max", "kind"],
)
def test_a_mismatch_is_the_same_error_on_all_and_the_engine_goes_on(pair, submit):
    handles = [submit(pair[rank], rank) for rank in range(2)]
    errors = []
    for handle in handles:
        with pytest.raises(MismatchError, match=r"^m: ") as raised:
            handle.wait(LIMIT_S)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    results = both(pair, lambda e, r: e.allreduce([torch.ones(1)], names=["m"], op=SUM))
    assert results[0][0].item() == 2.0


@pytest.mark.parametrize(
    ("tensors", "names", "outs"),
    [
        ([], [], None),
        ([torch.ones(2)], ["k", "l"], None),
        ([torch.ones(4)[::2]], ["k"], None),
        ([torch.ones(2).to_sparse()], ["k"], None),
        ([torch.ones(2)], ["k"], [torch.ones(3)]),
        (torch.ones(2), ["k"], None),
        ([[1.0, 2.0]], ["k"], None),
    ],
    ids=["none", "names", "stride", "sparse", "out", "bare", "list"],
)
def test_a_name_that_all_know_is_still_checked(pair, tensors, names, outs):
    both(pair, lambda e, r: e.allreduce([torch.ones(2)], names=["k"]))
    with pytest.raises(ConfigError):
        pair[0].allreduce(tensors, names=names, outs=outs)
    results = both(pair, lambda e, r: e.allreduce([torch.ones(2)], names=["k"], op=SUM))
    assert results[0][0].tolist() == [2.0, 2.0]


def test_a_name_under_way_is_refused_at_once(pair):
    handle = pair[0].allreduce([torch.ones(1)], names=["twice"])
    with pytest.raises(ConfigError, match="twice is under way already"):
        pair[0].allreduce([torch.ones(1), torch.ones(1)], names=["new", "twice"])
    assert not handle.done()
    pair[1].allreduce([torch.ones(1)], names=["twice"]).wait(LIMIT_S)
    handle.wait(LIMIT_S)
    both(pair, lambda e, r: e.allreduce([torch.ones(1)], names=["new"]))


def test_a_wait_has_a_limit_and_may_be_repeated(pair):
    handle = pair[1].allreduce([torch.ones(1)], names=["late"])
    with pytest.raises(WaitTimeout, match="late is not done"):
        handle.wait(0.05)
    pair[0].allreduce([torch.ones(1)], names=["late"])
    assert handle.wait(LIMIT_S)[0].item() == 1.0


def test_operations_that_nobody_waits_for_are_done_all_the_same(pair):
    import time

    handles = [pair[rank].allreduce([torch.ones(3)], names=["quiet"]) for rank in range(2)]
    limit_s = time.monotonic() + LIMIT_S
    while not all(handle.done() for handle in handles):
        assert time.monotonic() < limit_s
        time.sleep(0.001)


def test_joined_ranks_add_what_changes_nothing(trio):
    def uneven(rank):
        engine, found = trio[rank], []
        for _ in range(rank + 1):
            found.append(
                [
                    engine.allreduce([torch.ones(2), torch.ones(3)], names=["a", "b"]),
                    engine.allreduce([torch.ones(2) * (rank + 1)], names=["min"], op=ReduceOp.MIN),
                    engine.allreduce([torch.tensor([3])], names=["prod"], op=ReduceOp.PRODUCT),
                ]
            )
            found[-1] = [handle.wait(LIMIT_S)[0][0].item() for handle in found[-1]]
        if rank == 2:
            with pytest.raises(MismatchError, match="Join"):
                engine.allgather([torch.ones(1)], names=["g"]).wait(LIMIT_S)
        return found, engine.join().wait(LIMIT_S)

    results = on_ranks(3, uneven)
    assert [last for _, last in results] == [2, 2, 2]
    rounds = results[2][0]
    assert [each[0] for each in rounds] == pytest.approx([1.0, 2 / 3, 1 / 3])
    assert [each[1:] for each in rounds] == [[1, 27], [2, 9], [3, 3]]


def test_process_sets(trio):
    both_sets = on_ranks(
        3, lambda rank: [trio[rank].add_process_set(ranks) for ranks in ((0, 1), (2, 1))]
    )
    one, two = both_sets[0]
    assert both_sets == [[one, two]] * 3
    assert trio[2].process_sets() == {0: (0, 1, 2), one: (0, 1), two: (1, 2)}

    def use(rank):
        engine, handles = trio[rank], []
        for number, ranks in ((one, (0, 1)), (two, (1, 2))):
            if rank in ranks:
                handles += [
                    engine.allreduce([torch.ones(1) * rank], names=["a"], process_set=number),
                    engine.broadcast(torch.ones(1) * rank, ranks[1], name="b", process_set=number),
                    engine.barrier(number),
                ]
            else:
                with pytest.raises(ConfigError, match="not a member"):
                    engine.barrier(number)
        return [handle.wait(LIMIT_S) for handle in handles]

    results = on_ranks(3, use)
    assert results[0][0][0].item() == 0.5
    assert results[0][1].item() == 1.0
    assert results[2][0][0].item() == 1.5
    assert results[2][1].item() == 2.0
    with pytest.raises(ConfigError, match="root_rank 2"):
        trio[0].broadcast(torch.ones(1), 2, name="b", process_set=one)
    with pytest.raises(MismatchError, match="already"):
        on_ranks(3, lambda rank: trio[rank].add_process_set((0, 1)))
    for number in (one, two):
        assert on_ranks(3, lambda rank, n=number: trio[rank].remove_process_set(n)) == [True] * 3
    assert on_ranks(3, lambda rank: trio[rank].remove_process_set(one)) == [False] * 3
    assert trio[0].process_sets() == {0: (0, 1, 2)}
    with pytest.raises(ConfigError, match="no process set"):
        trio[0].barrier(one)


def test_fewer_slots_and_smaller_buckets_give_the_same():
    with started(2, cache_capacity=2, fusion_bytes=64) as engines:
        for _ in range(3):

            def submit(rank):
                handles = [
                    engines[rank].allreduce([torch.ones(n)], names=[f"t{n}"], op=SUM)
                    for n in range(1, 12)
                ]
                return [handle.wait(LIMIT_S)[0] for handle in handles]

            for results in on_ranks(2, submit):
                assert all(torch.equal(each, torch.full_like(each, 2.0)) for each in results)


def test_closing_ends_what_is_under_way_on_every_rank():
    with started(2) as engines:
        mine = engines[0].allreduce([torch.ones(1)], names=["a"])
        theirs = engines[1].allreduce([torch.ones(1)], names=["b"])
        engines[0].close()
        with pytest.raises(EngineClosed):
            mine.wait(LIMIT_S)
        with pytest.raises(EngineClosed, match="rank 0 has shut down"):
            theirs.wait(LIMIT_S)
        with pytest.raises(EngineClosed):
            engines[0].barrier()
        with pytest.raises(EngineClosed):
            engines[1].barrier().wait(LIMIT_S)
        assert issubclass(EngineClosed, CollectiveError)


def test_a_rank_that_closes_first_does_not_spoil_what_it_has_done():
    with started(2) as engines:
        handles = [engines[1].allreduce([torch.ones(1)], names=[f"{n}"]) for n in range(20)]

        def first():
            for number in range(20):
                engines[0].allreduce([torch.ones(1)], names=[f"{number}"]).wait(LIMIT_S)
            engines[0].close()

        thread = threading.Thread(target=first)
        thread.start()
        thread.join(LIMIT_S)
        assert [handle.wait(LIMIT_S)[0].item() for handle in handles] == [1.0] * 20


def test_only_what_all_ranks_know_is_submitted_without_a_look_at_it():
    how, key = (SUM, (1.0, 1.0)), (0, "known")
    with started(2) as engines:

        def act(rank):
            engine, tensor = engines[rank], torch.ones(3)
            assert engine.allreduce_again(key, tensor, tensor, how) is None
            engine.allreduce([tensor], names=["known"], op=SUM, outs=[tensor]).wait(LIMIT_S)
            again = engine.allreduce_again(key, tensor, tensor, how)
            assert again.wait(LIMIT_S)[0] is tensor
            assert tensor.tolist() == [4.0] * 3
            (new,) = engine.allreduce_again(key, tensor, None, how).wait(LIMIT_S)
            assert (new.tolist(), tensor.tolist()) == ([8.0] * 3, [4.0] * 3)
            negated = torch._neg_view(torch.ones(3))
            for other in (torch.ones(2), torch.ones(3).double(), torch.ones(3, 2).T[0], negated):
                assert engine.allreduce_again(key, other, other, how) is None
            for unlike in ((ReduceOp.MIN, (1.0, 1.0)), (SUM, (2.0, 1.0))):
                assert engine.allreduce_again(key, tensor, tensor, unlike) is None
            assert engine.allreduce_again((0, "other"), tensor, tensor, how) is None
            engine.barrier().wait(LIMIT_S)
            engine.close()
            assert engine.allreduce_again(key, tensor, tensor, how) is None

        on_ranks(2, act)


@pytest.mark.parametrize("num_tensors", [1, 3])
def test_autograd_hears_of_what_changes_in_place(num_tensors):
    with started(2) as engines:

        def act(rank):
            engine, names = engines[rank], [f"{number}" for number in range(num_tensors)]
            reduced = [torch.ones(3) for _ in names]
            engine.allreduce(reduced, names=names, op=SUM, outs=reduced).wait(LIMIT_S)
            assert [tensor._version for tensor in reduced] == [1] * num_tensors
            sent = torch.ones(3)
            engine.broadcast(sent, 0, name="from 0", out=sent).wait(LIMIT_S)
            assert sent._version == (rank != 0)
            with torch.inference_mode():
                untracked = torch.ones(3)
            engine.allreduce([untracked], names=["i"], op=SUM, outs=[untracked]).wait(LIMIT_S)
            assert untracked.tolist() == [2.0] * 3

        on_ranks(2, act)


def test_ranks_start_again_and_again():
    for _ in range(25):
        with started(2) as engines:
            assert (
                both(engines, lambda e, r: e.allreduce([torch.ones(1)], names=["a"], op=SUM))[1][
                    0
                ].item()
                == 2.0
            )


def test_a_rank_that_does_not_come_is_named():
    from torch.distributed import HashStore

    from bireme.settings.collective import CollectiveSettings

    with pytest.raises(WaitTimeout, match=r"rank 0 waited 0.2 s for the ranks \[1, 2\]"):
        start(
            Topology.on_one_machine(0, 3),
            CollectiveSettings(start_timeout_s=0.2),
            store=HashStore(),
        )
    with pytest.raises(ConfigError, match="store"):
        start(Topology.on_one_machine(0, 2))


def test_stalls_are_told_and_name_the_missing_ranks(caplog):
    with started(2, stall_warning_s=0.2, stall_shutdown_s=1.0) as engines:
        handle = engines[0].allreduce([torch.ones(1)], names=["lonely"])
        with pytest.raises(CollectiveError, match=r"ended after a stall: .*rank 1 misses lonely"):
            handle.wait(LIMIT_S)
    assert "rank 1 misses lonely (submitted by rank 0)" in caplog.text


def test_rank_0_writes_a_timeline(tmp_path):
    path = tmp_path / "trace.json"
    with started(2) as engines:
        on_ranks(2, lambda rank: engines[rank].start_timeline(path, mark_cycles=True))
        for _ in range(2):

            def submit(rank):
                handles = [
                    engines[rank].allreduce([torch.ones(2)], names=[f"allreduce.{name}"])
                    for name in "ab"
                ]
                return [handle.wait(LIMIT_S) for handle in handles]

            on_ranks(2, submit)
        on_ranks(2, lambda rank: engines[rank].stop_timeline())
    events = json.loads(path.read_text())
    names = {event.get("name") for event in events}
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "GLOO_ALLREDUCE", "0", "1"} <= names
    rows = {
        event["args"]["name"]
        for event in events
        if event.get("name") == "process_name" and "name" in event["args"]
    }
    assert rows == {"allreduce.a", "allreduce.b"}
    for row in {event["pid"] for event in events if event["pid"]}:
        depth = 0
        for event in events:
            if event["pid"] == row and event["ph"] in "BE":
                depth += 1 if event["ph"] == "B" else -1
                assert depth >= 0
        assert depth == 0
