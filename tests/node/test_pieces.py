import pytest
import torch

from bireme.errors import DataError
from bireme.node.pieces import by_name, name_of, pack, unpack
from bireme.update import states


def test_tensors_and_numbers_come_back():
    state = {"step": 3, "none": None, "m": torch.arange(4.0), "scalar": torch.tensor(2.0)}
    back = unpack(pack({(7, 2): state, (8, 0): {}}))
    assert back[8, 0] == {}
    assert (back[7, 2]["step"], back[7, 2]["none"]) == (3, None)
    assert torch.equal(back[7, 2]["m"], torch.arange(4.0))
    assert back[7, 2]["scalar"].shape == ()


@pytest.mark.parametrize("raw", [b"", b"junk", b"\xff" * 100, states.pack({"no-slot": {}})])
def test_anything_else_is_refused(raw):
    with pytest.raises(DataError):
        unpack(raw)


def test_names_of_slots():
    assert name_of((7, 2)) == "7.2"
    assert by_name({(7, 2): {"step": 1}}) == {"7.2": {"step": 1}}
