"""The prepared way of a pushpull gives what the general way gives, and knows when it cannot."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.jobs import run_threads
from tests.kvstore.dist.test_entry import make

from bireme import kvstore
from bireme.errors import BiremeError, ConfigError
from bireme.kvstore.dist import routine
from bireme.kvstore.dist.entry import DistEntry, SlotSpan
from bireme.kvstore.dist.routine import Routine, Routines
from bireme.transport.pool import BufferPool, PooledBuffer
from bireme.update.layout import Layout


def entry(key, length, server=0, key_id=0):
    layout = Layout.of(key, torch.zeros(length))
    return DistEntry(key, layout, [SlotSpan((key_id, 0), 0, length, server)])


def entries(*lengths):
    return [entry(f"k{i}", length, i % 2, i) for i, length in enumerate(lengths)]


def test_slots_are_bundled_by_server():
    bunches = Routine(entries(2, 2, 4, 2, 8), bundle_bytes=32)._bunches
    assert [(each.server, each.slots, each.size_bytes) for each in bunches] == [
        (0, ((0, 0), (2, 0)), 24),
        (1, ((1, 0), (3, 0)), 16),
        (0, ((4, 0),), 32),
    ]


def test_large_slots_travel_alone_and_do_not_part_the_small_ones_around_them():
    lengths = [1, 8, 1, 1, 4, 1, 3, 3, 1]
    listed = [entry(f"k{i}", length, 0, i) for i, length in enumerate(lengths)]
    bunches = Routine(listed, bundle_bytes=24)._bunches
    assert [([key for key, _ in each.slots], each.size_bytes) for each in bunches] == [
        ([0, 2, 3, 5], 16),
        ([1], 32),
        ([4], 16),
        ([6, 7], 24),
        ([8], 4),
    ]


def test_what_leaves_and_where_it_comes_to():
    values, outs = [torch.tensor([1.0, 2]), torch.tensor([3.0])], [torch.zeros(2), torch.zeros(1)]
    made = Routine([entry("a", 2), entry("b", 1, key_id=1)])
    for _ in range(3):
        parcels, landing = made.exchange(values, outs)
        ((bunch, parcel),) = parcels
        content = b"".join(bytes(view) for view in parcel.views)
        assert content == torch.cat(values).numpy().tobytes()
        landing.take(bunch, memoryview(bytearray(torch.tensor([7.0, 8, 9]).numpy().tobytes())))
        assert [each.tolist() for each in outs] == [[7.0, 8.0], [9.0]]
        values = [value + 1 for value in values]
        outs = [torch.zeros(2), torch.zeros(1)]


def test_cut_values_lie_where_their_slots_are():
    cut = make((6,), 4, 2)
    value = torch.arange(6.0)
    parcels, landing = Routine([cut], bundle_bytes=16).exchange([value], [value])
    numbers = [torch.frombuffer(each.views[0], dtype=torch.float32) for _, each in parcels]
    assert [each.tolist() for each in numbers] == [[0, 1, 2, 3], [4, 5]]
    assert bytes(landing.direct((3, 1), 8)) == value[4:].numpy().tobytes()


def allocate(size_bytes):
    return PooledBuffer(BufferPool(1 << 20), size_bytes)


def test_what_is_pushed_is_a_copy_in_one_piece():
    made = Routine([entry("a", 2), entry("b", 1, key_id=1)])
    for _ in range(2):
        values = [torch.tensor([1.0, 2]), torch.tensor([3.0])]
        ((bunch, parcel),) = made.push(values, allocate)
        for value in values:
            value.zero_()
        (view,) = parcel.views
        assert bytes(view) == torch.tensor([1.0, 2, 3]).numpy().tobytes()
        assert parcel.size_bytes == bunch.size_bytes == 12


def test_what_is_pulled_comes_to_the_tensors_of_this_time():
    made = Routine([entry("a", 2), entry("b", 1, key_id=1)])
    for _ in range(2):
        outs = [torch.zeros(2), torch.zeros(1)]
        landing = made.pull(outs)
        (bunch,) = landing.bunches
        landing.take(bunch, memoryview(torch.tensor([7.0, 8, 9]).numpy().tobytes()))
        assert [each.tolist() for each in outs] == [[7.0, 8.0], [9.0]]


def test_what_cannot_be_pushed_or_pulled_at_once():
    made = Routine([entry("a", 2), entry("b", 2, key_id=1)])
    same = torch.zeros(2)
    for wrong in (
        [same],
        [same, torch.zeros(3)],
        [same, same.double()],
        [same, "b"],
        [[same], same],
    ):
        assert made.push(wrong, allocate) is None
        assert made.pull(wrong) is None
    assert made.pull([same, same]) is None
    assert made.push([same, same], allocate) is not None


WHOLE = torch.zeros(8)


@pytest.mark.parametrize(
    ("value", "out"),
    [
        (torch.zeros(3), torch.zeros(4)),
        (torch.zeros(4), torch.zeros(4, dtype=torch.float64)),
        (torch.zeros(4).to_sparse(), torch.zeros(4)),
        (torch.zeros(8)[::2], torch.zeros(4)),
        (torch.zeros(4), torch.zeros(4, device="meta")),
        (WHOLE[:4], WHOLE[2:6]),
        ([torch.zeros(4), torch.zeros(4)], torch.zeros(4)),
        (None, torch.zeros(4)),
    ],
)
def test_other_tensors_go_the_general_way(value, out):
    made = Routine([entry("a", 4)])
    assert made.exchange([value], [out]) is None
    assert made.exchange([torch.zeros(4)], [torch.zeros(4)]) is not None
    assert made.exchange([], []) is None


def test_tensors_that_change_in_place_are_looked_at_again():
    made, value = Routine([entry("a", 4)]), torch.zeros(4)
    assert made.exchange([value], [value]) is not None
    value.data = torch.zeros(8)[::2]
    assert made.exchange([value], [value]) is None
    value.data = torch.arange(4.0)
    ((_, parcel),), _ = made.exchange([value], [value])
    assert bytes(parcel.views[0]) == value.numpy().tobytes()


def test_what_can_be_prepared(monkeypatch):
    known = Routines()
    known.add([])
    known.add(entries(2, 0))
    sparse = DistEntry("s", Layout.of("s", torch.zeros(2, 2).to_sparse(1)), make((4,), 4).spans)
    known.add([sparse])
    assert [known.find(keys) for keys in ([], ["k0", "k1"], ["s"])] == [None] * 3
    known.add(entries(2, 3))
    assert known.find(("k0", "k1")) is known.find(["k0", "k1"]) is not None
    known.add([entry(1, 2)])
    assert known.find([1]) is not None
    assert [known.find(keys) for keys in ([True], [1.0], [[1]], 1, ["k1", "k0"])] == [None] * 5
    monkeypatch.setattr(routine, "_MOST_ROUTINES", 2)
    known.add([entry(2, 2)])
    assert len(known._known) == 1


def test_it_is_taken_from_the_second_time_on(monkeypatch):
    seen = []
    exchange = Routine.exchange

    def watched(self, values, outs):
        found = exchange(self, values, outs)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(Routine, "exchange", watched)
    with kvstore.create("dist_sync") as store:
        value, out = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        store.init("a", torch.zeros(3))
        for number in range(4):
            version = out._version
            store.pushpull("a", (value * number).detach(), out)
            assert out.tolist() == [number] * 3
            assert out._version > version
        assert seen == [True] * 3
        store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        store.pushpull("a", torch.ones(3), out)
        assert out.tolist() == [0.5] * 3
        store.set_gradient_compression(None)
        store.pushpull("a", torch.ones(3))
        assert seen == [True] * 4
        for bad in (torch.ones(4), torch.ones(3, dtype=torch.int32), "x"):
            with pytest.raises(ConfigError):
                store.pushpull("a", bad)
        with pytest.raises(BiremeError):
            store.pushpull(["a"], torch.ones(3), out)
    with pytest.raises(BiremeError, match="closed"):
        store.pushpull("a", torch.ones(3), out)


STEPS = st.lists(
    st.tuples(st.sampled_from(["all", "some", "one", "push", "pull", "async"]), st.integers(-4, 4)),
    min_size=1,
    max_size=12,
)
SIZES = (5, 1, 40, 3)


@settings(max_examples=15, deadline=None)
@given(STEPS, st.integers(1, 2), st.integers(1, 2))
def test_any_mixture_of_ways_gives_the_sums(steps, num_workers, num_servers):
    def work(session):
        store = session.store("dist_sync")
        keys = [f"k{i}" for i in range(len(SIZES))]
        store.init(keys, [torch.zeros(size) for size in SIZES])
        outs, expected = [torch.zeros(size) for size in SIZES], [0.0] * len(SIZES)
        for kind, number in steps:
            chosen = {"some": [2, 0], "one": [1]}.get(kind, [0, 1, 2, 3])
            names = [keys[i] for i in chosen]
            sums = sum(number * 10 + rank for rank in range(store.num_workers))
            values = [torch.full((SIZES[i],), number * 10.0 + store.rank) for i in chosen]
            targets = [outs[i] for i in chosen]
            if kind == "push":
                store.push(names, values)
                for value in values:
                    value.fill_(-1.0)  # it has been copied
            if kind in ("push", "pull"):
                store.pull(names, targets)
            elif kind == "async":
                store.pushpull_async(names, values, targets).wait()
            else:
                store.pushpull(names, values, targets)
            for i in chosen:
                expected[i] = expected[i] if kind == "pull" else sums
                assert outs[i].tolist() == [expected[i]] * SIZES[i]
            store.barrier()
        store.close()

    run_threads(num_workers, num_servers, work, slice_bytes=64)
