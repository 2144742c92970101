"""Tensors that count as one, wherever they lie."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.collective.bank.elements import elements_of
from bireme.collective.bank.strewn import Strewn, Whole

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.uint8]


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
    strewn = Strewn(elements, sources, targets)
    assert len(strewn) == total

    area = torch.zeros(stop - start, dtype=dtype)
    strewn.write(elements.of(area), start, stop)
    assert torch.equal(area, whole[start:stop])
    own = torch.as_tensor(strewn.own(start, stop))
    assert torch.equal(own, whole[start:stop])

    strewn.read(elements.of(area), start, stop)
    want = torch.full_like(whole, 77)
    want[start:stop] = whole[start:stop]
    assert torch.equal(torch.cat(targets), want)
    assert torch.equal(torch.cat(sources), whole)


def test_factors_apply_on_the_way_in_and_on_the_way_out():
    elements = elements_of(torch.float64)
    tensors = [torch.ones(2, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    strewn = Strewn(elements, tensors, tensors, before=3.0, after=0.5)
    area = torch.zeros(4, dtype=torch.float64)
    strewn.write(elements.of(area), 1, 5)
    assert area.tolist() == [3.0] * 4
    strewn.read(elements.of(area), 1, 5)
    assert area.tolist() == [3.0] * 4
    assert torch.cat(tensors).tolist() == [1.0, 1.5, 1.5, 1.5, 1.5]


def test_results_may_come_as_a_whole():
    elements = elements_of(torch.float32)
    tensors = [torch.zeros(2), torch.zeros(1)]
    strewn = Strewn(elements, tensors, tensors, after=2.0)
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
