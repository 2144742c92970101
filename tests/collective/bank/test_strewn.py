"""Tensors that count as one, wherever they lie."""

import gc
import weakref

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.collective.bank.elements import Reduction, elements_of, raw_bytes
from bireme.collective.bank.strewn import Strewn, Whole, places_of

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.uint8]


def strewn_of(sources, targets, before=1.0, after=1.0):
    elements = elements_of(sources[0].dtype)
    return Strewn(elements, places_of(sources, targets), before, after)


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    dtype=st.sampled_from(DTYPES),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_any_run_is_written_and_read_as_of_one_tensor(lengths, dtype, data):
    total = sum(lengths)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    elements = elements_of(dtype)
    whole = torch.arange(total).to(dtype)
    sources = [each.clone() for each in whole.split(lengths)]
    targets = [torch.full_like(each, 77) for each in sources]
    strewn = strewn_of(sources, targets)
    assert len(strewn) == total

    for times in (1, 2):  # Known from the second time on.
        for each in sources:
            each.mul_(times)
        area = torch.zeros(stop - start, dtype=dtype)
        strewn.write(elements.of(area), start, stop)
        assert torch.equal(area, whole[start:stop] * times)

        strewn.read(elements.of(area), start, stop)
        want = torch.full_like(whole, 77)
        want[start:stop] = whole[start:stop] * times
        assert torch.equal(torch.cat(targets), want)
        assert torch.equal(torch.cat(sources), whole * times)


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    dtype=st.sampled_from(DTYPES),
    op=st.sampled_from([Reduction.SUM, Reduction.AVG, Reduction.PRODUCT, Reduction.MAX]),
    size=st.integers(1, 4),
    before=st.sampled_from([1.0, 3.0]),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_a_run_is_reduced_as_that_of_one_tensor(lengths, dtype, op, size, before, data):
    if dtype not in (torch.float32, torch.float64):
        before = 1.0
    total = sum(lengths)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    me = data.draw(st.integers(0, size - 1))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    elements = elements_of(dtype, op)
    whole = torch.randint(-99, 99, (total,), generator=generator).to(dtype)
    if dtype.is_floating_point and total:
        # The sign of a sum of two says which came first.
        whole[data.draw(st.integers(0, total - 1))] = float("nan")
    tensors = [each.clone() for each in whole.split(lengths)]
    areas = [
        elements.of(torch.randint(-99, 99, (stop - start,), generator=generator).to(dtype))
        for _ in range(size)
    ]
    if dtype is torch.float32 and stop > start:
        for rank, area in enumerate(areas):
            area[:1] = [float("nan"), -float("nan")][rank % 2]
    kept = [torch.as_tensor(area).clone() for area in areas]

    wanted, found = (elements.of(torch.zeros(stop - start, dtype=dtype)) for _ in range(2))
    scaled = whole * before if before != 1.0 else whole
    Whole(elements, elements.of(scaled)).fold(list(areas), me, wanted, op, start)
    strewn_of(tensors, tensors, before).fold(list(areas), me, found, op, start)
    assert bits(found) == bits(wanted)
    assert list(map(bits, areas)) == list(map(bits, kept))


def bits(array):
    return raw_bytes(torch.as_tensor(array)).tobytes() if len(array) else b""


def test_tensors_are_not_kept_alive():
    tensors = [torch.ones(4), torch.ones(5)]
    strewn, area = strewn_of(tensors, tensors), elements_of(torch.float32).of(torch.zeros(9))
    strewn.write(area, 0, 9)
    strewn.fold([area, area.copy()], 0, area.copy(), Reduction.SUM, 0)
    gone = [weakref.ref(each) for each in tensors]
    storage = [weakref.ref(each.untyped_storage()) for each in tensors]
    del tensors
    gc.collect()
    assert [each() for each in gone + storage] == [None] * 4


def test_factors_apply_on_the_way_in_and_on_the_way_out():
    elements = elements_of(torch.float64)
    tensors = [torch.ones(2, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    strewn = strewn_of(tensors, tensors, before=3.0, after=0.5)
    area = torch.zeros(4, dtype=torch.float64)
    strewn.write(elements.of(area), 1, 5)
    assert area.tolist() == [3.0] * 4
    strewn.read(elements.of(area), 1, 5)
    assert area.tolist() == [3.0] * 4
    assert torch.cat(tensors).tolist() == [1.0, 1.5, 1.5, 1.5, 1.5]


def test_results_may_come_as_a_whole():
    tensors = [torch.zeros(2), torch.zeros(1)]
    strewn = strewn_of(tensors, tensors, after=2.0)
    blank = strewn.blank()
    blank[:] = 4.0
    strewn.settle(blank)
    assert torch.cat(tensors).tolist() == [8.0] * 3


def test_one_array_is_its_own_blank():
    elements = elements_of(torch.float32)
    array = elements.of(torch.zeros(3))
    whole = Whole(elements, array)
    assert whole.blank() is array
    whole.settle(array)
    assert len(whole) == 3
