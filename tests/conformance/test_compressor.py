"""What every compressor must do. To cover a new one, add a line to COMPRESSORS."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme.compress import Compressor, ErrorFeedback, Half, OneBit, Payload, TwoBit, create
from bireme.errors import ConfigError, UnsupportedError

COMPRESSORS = [
    ErrorFeedback(TwoBit(0.5)),
    ErrorFeedback(TwoBit(0.1)),
    ErrorFeedback(OneBit(0.5)),
    ErrorFeedback(OneBit(-0.25)),
    Half(torch.float16),
    Half(torch.bfloat16),
    ErrorFeedback(Half(torch.float16)),
    ErrorFeedback(Half(torch.bfloat16)),
]
SHAPES = [(), (0,), (1,), (5,), (16,), (33,), (3, 5), (2, 0, 3), (4, 8, 9), (5000,)]


def with_memory(compressor: Compressor) -> bool:
    return compressor.init(torch.zeros(1)) is not None


every = pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
every_with_memory = pytest.mark.parametrize(
    "compressor", [c for c in COMPRESSORS if with_memory(c)], ids=repr
)


def gradient(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def quarters(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Multiples of 1/4: with threshold 0.5 or 1 every sum is exact."""
    return (gradient(shape, seed) * 4).round() / 4


@every
def test_satisfies_the_protocol(compressor):
    assert isinstance(compressor, Compressor)


@every
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape_and_dtype_come_back(compressor, shape):
    grad = gradient(shape)
    payload, _ = compressor.compress(grad, compressor.init(grad))
    result = compressor.decompress(payload)
    assert (result.shape, result.dtype, result.device) == (grad.shape, grad.dtype, grad.device)
    assert (payload.shape, payload.dtype) == (grad.shape, grad.dtype)
    assert payload.data.dim() == 1
    assert payload.data.is_contiguous()


@every
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_payload_bytes_is_the_truth(compressor, shape):
    grad = gradient(shape)
    payload, _ = compressor.compress(grad, compressor.init(grad))
    assert payload.size_bytes == compressor.payload_bytes(grad.numel())
    assert payload.size_bytes == payload.data.untyped_storage().nbytes()


@every_with_memory
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_not_sent_is_kept(compressor, shape):
    state = compressor.init(gradient(shape))
    for step in range(4):
        grad = gradient(shape, seed=step)
        before = state.clone()
        payload, state = compressor.compress(grad, state)
        torch.testing.assert_close(
            compressor.decompress(payload) + state, grad + before, rtol=1e-6, atol=1e-6
        )


@every_with_memory
@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.floats(-4, 4, width=32), min_size=19, max_size=19), min_size=1, max_size=30
    )
)
def test_nothing_is_lost_over_many_steps(compressor, rows):
    grads = [torch.tensor(row) for row in rows]
    state = compressor.init(grads[0])
    received = torch.zeros(19)
    for grad in grads:
        payload, state = compressor.compress(grad, state)
        compressor.decompress(payload, received, accumulate=True)
    pushed = torch.stack(grads).double().sum(dim=0)
    torch.testing.assert_close(received.double() + state, pushed, rtol=0, atol=1e-3)


@every
def test_gradient_is_unchanged_and_not_shared(compressor):
    grad = gradient((3, 50))
    before = grad.clone()
    payload, _ = compressor.compress(grad, compressor.init(grad))
    result = compressor.decompress(payload).clone()
    assert torch.equal(grad, before)
    grad.zero_()  # the next backward pass reuses this memory while the payload still travels
    assert torch.equal(compressor.decompress(payload), result)


@every
def test_payload_outlives_the_next_call(compressor):
    grad = gradient((50,))
    first, state = compressor.compress(grad, compressor.init(grad))
    result = compressor.decompress(first)
    compressor.compress(-grad, state)
    assert torch.equal(compressor.decompress(first), result)


@every
def test_same_input_gives_the_same_bytes(compressor):
    def run() -> tuple[list[torch.Tensor], torch.Tensor | None]:
        state, sent = compressor.init(gradient((777,))), []
        for step in range(3):
            payload, state = compressor.compress(gradient((777,), seed=step), state)
            sent.append(payload.data)
        return sent, state

    (sent, state), (again, state_again) = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(sent, again, strict=True))
    assert state is None or torch.equal(state, state_again)


@every
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_accumulate_is_out_plus_decompressed(compressor, shape):
    grad = gradient(shape)
    payload, _ = compressor.compress(grad, compressor.init(grad))
    out = gradient(shape, seed=9)
    expected = out + compressor.decompress(payload)
    assert compressor.decompress(payload, out, accumulate=True) is out
    assert torch.equal(out, expected)


@every
def test_decompress_overwrites_out_and_returns_it(compressor):
    grad = gradient((3, 7))
    payload, _ = compressor.compress(grad, compressor.init(grad))
    out = torch.full((3, 7), math.nan)
    assert compressor.decompress(payload, out) is out
    assert torch.equal(out, compressor.decompress(payload))


@every
@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[::2, 1::3],
        lambda t: t[:, :1].expand(-1, 5),
        lambda t: t.view(4, 2, 3, 5).contiguous(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "channels_last"],
)
def test_strides_do_not_matter(compressor, view):
    grad = view(gradient((8, 15)))
    assert not grad.is_contiguous()
    dense = grad.contiguous()
    payload, state = compressor.compress(grad, compressor.init(grad))
    expected, expected_state = compressor.compress(dense, compressor.init(dense))
    assert torch.equal(payload.data, expected.data)
    assert torch.equal(compressor.decompress(payload), compressor.decompress(expected))
    assert state is None or torch.equal(state, expected_state)


@every
def test_gradient_of_a_graph_is_taken(compressor):
    grad = gradient((20,)).requires_grad_() * 2
    payload, _ = compressor.compress(grad, compressor.init(grad))
    assert not compressor.decompress(payload).requires_grad


@every
def test_params_make_an_equal_compressor(compressor):
    params = compressor.to_params()
    assert create(params) == compressor
    assert create({name: str(value) for name, value in params.items()}) == compressor
    assert params["type"] == compressor.name


@every_with_memory
@pytest.mark.parametrize(
    "state",
    [
        None,
        torch.zeros(5),
        torch.zeros(3, 4),
        torch.zeros(4, 3, dtype=torch.float64),
        torch.zeros(4, 3, dtype=torch.int32),
        torch.zeros(3, 4).t(),
        torch.zeros(4, 3, device="meta"),
    ],
    ids=["none", "rank", "shape", "dtype", "int", "strides", "device"],
)
def test_wrong_state_is_refused_and_nothing_changes(compressor, state):
    before = None if state is None or state.is_meta else state.clone()
    with pytest.raises(ConfigError, match="state"):
        compressor.compress(gradient((4, 3)), state)
    assert before is None or torch.equal(state, before)


@every_with_memory
def test_gradient_as_its_own_state_is_refused(compressor):
    grad = gradient((4,))
    with pytest.raises(ConfigError, match="share memory"):
        compressor.compress(grad, grad)


@every
@pytest.mark.parametrize(
    "grad",
    [
        torch.eye(3).to_sparse(),
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(3, device="meta"),
    ],
    ids=["sparse", "int", "complex", "meta"],
)
def test_what_it_cannot_take_is_refused(compressor, grad):
    with pytest.raises(UnsupportedError):
        compressor.init(grad)
    with pytest.raises(UnsupportedError):
        compressor.compress(grad, torch.zeros(3) if with_memory(compressor) else None)


@every
@pytest.mark.parametrize(
    "out",
    [
        torch.zeros(5),
        torch.zeros(6, 7, dtype=torch.int32),
        torch.zeros(7, 6).t(),
        torch.zeros(6, 7, device="meta"),
    ],
    ids=["shape", "dtype", "strides", "device"],
)
def test_out_that_does_not_fit_is_refused(compressor, out):
    grad = gradient((6, 7))
    payload, _ = compressor.compress(grad, compressor.init(grad))
    with pytest.raises(ConfigError, match="out"):
        compressor.decompress(payload, out)


@every
def test_accumulate_without_out_is_refused(compressor):
    grad = gradient((6,))
    payload, _ = compressor.compress(grad, compressor.init(grad))
    with pytest.raises(ConfigError, match="accumulate"):
        compressor.decompress(payload, accumulate=True)


@every
@pytest.mark.parametrize(
    "damage",
    [
        lambda p: Payload(p.data[:-1], p.shape, p.dtype),
        lambda p: Payload(torch.cat([p.data, p.data]), p.shape, p.dtype),
        lambda p: Payload(p.data.view(2, -1), p.shape, p.dtype),
        lambda p: Payload(p.data.to(torch.int32), p.shape, p.dtype),
        lambda p: Payload(p.data, torch.Size([65]), p.dtype),
        lambda p: Payload(p.data, p.shape, torch.int32),
    ],
    ids=["short", "long", "rank", "data dtype", "shape", "dtype"],
)
def test_damaged_payload_is_refused(compressor, damage):
    grad = gradient((64,))
    payload, _ = compressor.compress(grad, compressor.init(grad))
    out = torch.ones(64)
    with pytest.raises(ConfigError, match="payload"):
        compressor.decompress(damage(payload), out)
    assert torch.equal(out, torch.ones(64))


@every
def test_another_compressors_payload_is_refused(compressor):
    grad = gradient((64,))
    for other in COMPRESSORS:
        payload, _ = other.compress(grad, other.init(grad))
        if other.name != compressor.name:
            with pytest.raises(ConfigError, match="payload"):
                compressor.decompress(payload)


@every
@pytest.mark.filterwarnings("ignore:.*NaN or infinite:RuntimeWarning")
def test_what_is_not_finite_does_not_spoil_the_state(compressor):
    good = quarters((40,), seed=1)
    bad = good.clone()
    bad[:3] = torch.tensor([math.nan, math.inf, -math.inf])
    _, state = compressor.compress(good, compressor.init(good))
    _, state = compressor.compress(bad, state)
    payload, state = compressor.compress(good, state)
    assert compressor.decompress(payload).isfinite().all()
    assert state is None or state.isfinite().all()


@every
def test_four_threads_at_once_agree_with_one(compressor):
    grads = [gradient((40_000,), seed=i) for i in range(4)]

    def work(grad: torch.Tensor) -> torch.Tensor:
        state, total = compressor.init(grad), torch.zeros_like(grad)
        for _ in range(20):
            payload, state = compressor.compress(grad, state)
            compressor.decompress(payload, total, accumulate=True)
        return total

    expected = [work(grad) for grad in grads]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, grads))
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


def final_loss(compressor: Compressor | None) -> float:
    """Loss of a linear regression after training, from an initial loss of about 2."""
    inputs, truth = gradient((200, 20), seed=1), gradient((20,), seed=2) / 3
    targets = inputs @ truth
    weight = torch.zeros(20)
    state = compressor.init(weight) if compressor else None
    for _ in range(2000):
        grad = inputs.t() @ (inputs @ weight - targets) / 200
        if compressor:
            payload, state = compressor.compress(grad, state)
            grad = compressor.decompress(payload)
        weight -= 0.01 * grad
    return float((inputs @ weight - targets).square().mean())


@every
def test_regression_converges_as_without_compression(compressor):
    assert final_loss(None) < 1e-3
    assert final_loss(compressor) < 0.01
