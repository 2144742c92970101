import torch

from bireme.kvstore.entry import Entry, Fence
from bireme.update.layout import Layout


def entry(value: torch.Tensor) -> Entry:
    return Entry("k", 0, Layout.of("k", value), value)


def test_merge_buffer_is_kept():
    held = entry(torch.zeros(2, 3))
    buffer = held.merge_buffer()
    assert (buffer.shape, buffer.dtype, buffer.device.type) == ((2, 3), torch.float32, "cpu")
    assert held.merge_buffer() is buffer
    assert buffer.data_ptr() != held.value.data_ptr()


def test_merge_buffer_follows_the_value():
    held = entry(torch.zeros(2, 3))
    before = held.merge_buffer()
    held.move(torch.device("meta"))
    assert held.value.is_meta
    assert held.merge_buffer().is_meta
    assert held.merge_buffer() is not before


def test_moving_to_where_it_is_keeps_the_tensor():
    held = entry(torch.zeros(2))
    value = held.value
    held.move(torch.device("cpu"))
    assert held.value is value


def test_fence_does_nothing_on_the_cpu():
    fence = Fence()
    fence.enter(torch.device("cpu"))
    fence.leave(torch.device("cpu"))
    fence.enter(torch.device("cpu"))
    assert fence._event is None
