import threading

import pytest
import torch

from bireme.node.memory import Held, bytes_of, tensor_over


def test_the_last_release_frees_once():
    freed = []
    held = Held(memoryview(bytearray(8)), lambda: freed.append(1))
    for _ in range(999):
        held.retain()
    assert held.shared
    threads = [
        threading.Thread(target=lambda: [held.release() for _ in range(250)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert freed == [1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("offset", [0, 1, 8])
@pytest.mark.parametrize("readonly", [False, True])
def test_a_tensor_over_any_bytes(dtype, offset, readonly):
    value = torch.arange(5).to(dtype)
    raw = bytes(offset) + bytes(bytes_of(value))
    view = memoryview(raw if readonly else bytearray(raw))
    assert torch.equal(tensor_over(view, dtype, 5, offset), value)


def test_aligned_memory_is_not_copied():
    buffer = torch.zeros(4)
    tensor_over(bytes_of(buffer), torch.float32, 2, 8).fill_(3)
    assert buffer.tolist() == [0, 0, 3, 3]


def test_nothing():
    assert tensor_over(memoryview(b""), torch.float32, 0).shape == (0,)
    assert bytes_of(torch.empty(0)).nbytes == 0


def test_values_that_require_grad():
    assert bytes_of(torch.ones(2, requires_grad=True)).nbytes == 8
