import pytest
import torch

from bireme.errors import LocalProtocolError
from bireme.node.parcels import Parcel, cut_parcel, raw_view


def parcel(tensors, size_bytes=12):
    views = [raw_view(each.data_ptr(), each.nbytes) for each in tensors]
    return Parcel(views, size_bytes, tensors)


def test_it_holds_its_owners_until_nobody_needs_it():
    tensors = [torch.ones(1), torch.ones(2)]
    held = parcel(tensors)
    held.retain()
    held.release()
    assert held._owners is tensors
    held.release()
    assert (held._owners, held.views) == (None, [])


def test_its_parts_are_released_one_by_one():
    tensors = [torch.tensor([1.0]), torch.tensor([2.0, 3.0])]
    held = parcel(tensors)
    one, two = cut_parcel(held, (4, 8))
    assert bytes(two.view) == tensors[1].numpy().tobytes()
    one.release()
    assert held._owners is tensors
    two.release()
    assert held._owners is None


def test_one_piece_is_cut_like_several():
    tensor = torch.tensor([1.0, 2.0, 3.0])
    held = parcel([tensor])
    one, two = cut_parcel(held, (4, 8))
    assert (bytes(one.view), bytes(two.view)) == (
        tensor[:1].numpy().tobytes(),
        tensor[1:].numpy().tobytes(),
    )
    one.release()
    two.release()
    assert held._owners is None
    with pytest.raises(LocalProtocolError, match=r"\[4, 4\]"):
        cut_parcel(parcel([tensor]), (4, 4))


def test_what_is_no_parcel_of_these_sizes_is_refused():
    for handle in (parcel([torch.ones(1)]), "bytes"):
        with pytest.raises(LocalProtocolError, match=r"\[4, 8\]"):
            cut_parcel(handle, (4, 8))
