import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compress import reference

from bireme.compress import bits_numba

FLOATS = st.floats(-3, 3, width=32) | st.sampled_from([0.5, -0.5, 0.0, -0.0, 0.1, -0.1])
PAIRS = st.lists(st.tuples(FLOATS, FLOATS), max_size=70)
NUM_LONG = 3 * (1 << 20) + 5
"""Long enough for two threads, and with an incomplete last byte."""


def arrays(pairs):
    values = np.array(pairs, np.float32).reshape(-1, 2)
    return values[:, 0].copy(), values[:, 1].copy()


def dirty(num_bytes):
    return torch.full((num_bytes,), 255, dtype=torch.uint8)


@settings(deadline=None)
@given(pairs=PAIRS, threshold=st.sampled_from([0.5, 0.1, 2.0]))
def test_twobit_is_the_definition(pairs, threshold):
    grad, residual = arrays(pairs)
    expected, left = reference.encode_twobit(grad, residual, threshold)
    data, ours = dirty(len(expected)), torch.from_numpy(residual)
    bits_numba.encode_twobit(torch.from_numpy(grad), ours, data, threshold)
    assert data.numpy().tobytes() == expected
    assert ours.numpy().tobytes() == left.tobytes()


@settings(deadline=None)
@given(pairs=PAIRS, threshold=st.sampled_from([0.5, 0.0, -0.25]))
def test_onebit_is_the_definition(pairs, threshold):
    grad, residual = arrays(pairs)
    expected, left = reference.encode_onebit(grad, residual, threshold)
    data, ours = dirty(len(expected)), torch.from_numpy(residual)
    bits_numba.encode_onebit(torch.from_numpy(grad), ours, data, threshold)
    assert data.numpy().tobytes() == expected
    assert ours.numpy().tobytes() == left.tobytes()


@pytest.mark.parametrize("numel", [0, 1, 3, 4, 5, 15, 16, 17])
def test_twobit_decodes_every_code_at_every_place(numel):
    values = torch.tensor([0.5, -0.5, 0.0, -0.5, 0.5, 0.0, 0.5] * 3)[:numel]
    codes = [{0.5: 3, -0.5: 2, 0.0: 0}[value] for value in values.tolist()]
    packed = reference.pack(codes, 2) or b"0"
    data = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    out = torch.full((numel,), 9.0)
    bits_numba.decode_twobit(data, out, 0.5, False)
    assert torch.equal(out, values)
    bits_numba.decode_twobit(data, out, 0.5, True)
    assert torch.equal(out, 2 * values)


@pytest.mark.parametrize("numel", [0, 1, 7, 8, 9, 31, 32, 33])
def test_onebit_decodes_every_code_at_every_place(numel):
    values = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0] * 7)[:numel]
    packed = reference.pack([int(v > 0) for v in values.tolist()], 1) or b"0"
    out = torch.full((numel,), 9.0)
    bits_numba.decode_onebit(torch.frombuffer(bytearray(packed), dtype=torch.uint8), out, False)
    assert torch.equal(out, values)
    bits_numba.decode_onebit(torch.frombuffer(bytearray(packed), dtype=torch.uint8), out, True)
    assert torch.equal(out, 2 * values)


def test_nothing_outside_out_is_written():
    around = torch.full((21,), 7.0)
    bits_numba.decode_twobit(dirty(4), around[2:15], 0.5, False)
    assert torch.equal(around[:2], torch.full((2,), 7.0))
    assert torch.equal(around[15:], torch.full((6,), 7.0))


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def passes(grad, residual):
    """Run all four passes over long arrays; return everything they wrote."""
    two, one = dirty(4 * -(-len(grad) // 16)), dirty(4 * -(-len(grad) // 32))
    residuals, outs = (residual.clone(), residual.clone()), (grad.clone(), grad.clone())
    bits_numba.encode_twobit(grad, residuals[0], two, 0.5)
    bits_numba.decode_twobit(two, outs[0], 0.5, True)
    bits_numba.encode_onebit(grad, residuals[1], one, 0.5)
    bits_numba.decode_onebit(one, outs[1], True)
    return two, one, *residuals, *outs


@pytest.mark.slow
def test_threads_change_no_byte(torch_threads):
    grad = torch.randn(NUM_LONG, generator=torch.Generator().manual_seed(1))
    torch_threads(1)
    expected = passes(grad, grad / 3)
    torch_threads(3)
    assert all(map(torch.equal, passes(grad, grad / 3), expected))


@pytest.mark.slow
def test_four_callers_with_threads_of_their_own(torch_threads):
    grads = [torch.randn(NUM_LONG, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    torch_threads(1)
    expected = [passes(grad, grad / 3) for grad in grads]
    torch_threads(2)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda grad: passes(grad, grad / 3), grads))
    for ours, theirs in zip(results, expected, strict=True):
        assert all(map(torch.equal, ours, theirs))


@pytest.mark.slow
def test_it_works_where_no_cache_can_be_written(tmp_path):
    module = tmp_path / "copy_of_bits.py"
    module.write_text(Path(bits_numba.__file__).read_text())
    (tmp_path / "__pycache__").write_text("a file where numba wants its directory")
    program = (
        "import torch, copy_of_bits as b\n"
        "g, r, d = torch.ones(5), torch.zeros(5), torch.zeros(4, dtype=torch.uint8)\n"
        "b.encode_twobit(g, r, d, 0.5); print(d.tolist())\n"
    )
    environ = {"PYTHONPATH": str(tmp_path), "HOME": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[255,", "192,", "0,", "0]"]
