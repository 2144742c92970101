import weakref

import torch

from bireme.core.bunches import Bunch
from bireme.node.landing import Landing
from bireme.node.parcels import raw_view


def landing():
    tensors = [torch.zeros(1), torch.zeros(2), torch.zeros(1)]
    views = [raw_view(each.data_ptr(), each.nbytes) for each in tensors]
    pair, single = Bunch(0, [(0, 0, 4), (1, 0, 8)]), Bunch(1, [(2, 0, 4)])
    return tensors, pair, single, Landing({pair: views[:2], single: views[2:]}, tensors)


def raw(*numbers):
    return memoryview(bytearray(torch.tensor(numbers).numpy().tobytes()))


def test_values_of_bunches_are_dealt_out():
    tensors, pair, single, there = landing()
    there.take(pair, raw(1.0, 2.0, 3.0))
    there.take(single, raw(4.0))
    assert [each.tolist() for each in tensors] == [[1.0], [2.0, 3.0], [4.0]]


def test_only_what_comes_alone_is_received_in_place():
    tensors, _, single, there = landing()
    assert there.direct((0, 0), 4) is None
    assert there.direct((2, 0), 8) is None
    target = there.direct((2, 0), 4)
    target[:] = raw(5.0)
    there.take(single, target.cast("B")[:])
    assert tensors[2].tolist() == [5.0]


def test_slots_that_come_one_by_one_have_places():
    tensors, _, _, there = landing()
    assert (len(there), list(there)) == (3, [(0, 0), (1, 0), (2, 0)])
    there[1, 0].write(raw(9.0, 6.0, 7.0), 4)
    assert tensors[1].tolist() == [6.0, 7.0]


def test_what_is_still_on_its_way_keeps_its_tensors():
    tensors, _, _, there = landing()
    gone = weakref.ref(tensors[2])
    target = there.direct((2, 0), 4)
    del tensors, there
    assert gone() is not None
    target[:] = raw(5.0)
    del target
    assert gone() is None
