import pytest
import torch
from tests.kvstore.dist.test_entry import make

from bireme.compress import create
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.calls import Push
from bireme.kvstore.dist.sending import Sender
from bireme.kvstore.reduce import HostReducer
from bireme.node.memory import tensor_over


def numbers(item, dtype=torch.float32):
    held, size = item[2], item[3]
    return tensor_over(held.view, dtype, size // dtype.itemsize).tolist()


def test_slots_of_a_sum_and_memory_that_is_lent():
    entry, sender = make((6,), 4, 2), Sender(HostReducer())
    value = torch.arange(6.0)
    lent = sender.items(entry, Push(entry, [value], False), borrow=True)
    summed = sender.items(entry, Push(entry, [value, value], False), borrow=True)
    copied = sender.items(entry, Push(entry, [value], False), borrow=False)
    value.fill_(9)
    assert [numbers(item) for item in lent] == [[9, 9, 9, 9], [9, 9]]
    assert [numbers(item) for item in copied] == [[0, 1, 2, 3], [4, 5]]
    assert [numbers(item) for item in summed] == [[0, 2, 4, 6], [8, 10]]
    assert [item[:2] for item in lent] == [(3, 0), (3, 1)]


def test_rows_go_to_their_slots_even_none():
    entry, sender = make((4, 2), 4, 4), Sender(HostReducer())
    content = torch.tensor([[3.0, 3], [2, 2]])
    value = torch.sparse_coo_tensor([[3, 2]], content, (4, 2), check_invariants=True).coalesce()
    items = sender.items(entry, Push(entry, [value], True), borrow=False)
    assert [(item[6], item[3]) for item in items] == [(0, 0), (2, 32)]
    assert tensor_over(items[1][2].view, torch.int64, 2).tolist() == [0, 1]
    nothing = torch.zeros(4, 2).to_sparse(1)
    items = sender.items(entry, Push(entry, [nothing], True), borrow=False)
    assert [item[6] for item in items] == [0, 0]
    cut = make((4, 2), 3, 5)
    with pytest.raises(UnsupportedError, match="BIREME_SLICE_BYTES"):
        sender.items(cut, Push(cut, [value], True), borrow=False)


@pytest.mark.parametrize("rows", [[-1, 0], [0, 4]])
def test_rows_that_the_key_does_not_have_are_refused(rows):
    entry, sender = make((4, 2), 4, 4), Sender(HostReducer())
    value = torch.sparse_coo_tensor([rows], torch.ones(2, 2), (4, 2), check_invariants=False)
    value = value._coalesced_(True)
    with pytest.raises(ConfigError, match="it has 4 rows"):
        sender.items(entry, Push(entry, [value], True), borrow=False)


def test_residuals_belong_to_slots():
    entry, sender = make((40,), 24, 16), Sender(HostReducer())
    sender.compress_with(create({"type": "2bit", "threshold": 0.5}))
    push = Push(entry, [torch.full((40,), 0.3)], False)
    sender.check(push)
    items = sender.items(entry, push, borrow=False)
    assert [item[4] for item in items] == ["2bit:0.5"] * 2
    assert [len(state) for state in entry.residuals] == [24, 16]
    assert torch.allclose(entry.residuals[0], torch.tensor(0.3))
