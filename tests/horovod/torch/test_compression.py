import pytest
import torch

from bireme.horovod.torch.compression import Compression, Compressor


@pytest.mark.parametrize(
    ("compression", "narrow"),
    [(Compression.fp16, torch.float16), (Compression.bf16, torch.bfloat16)],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16])
def test_floating_tensors_travel_narrow_and_come_back_as_they_were(compression, narrow, dtype):
    tensor = torch.tensor([1.0, -2.5], dtype=dtype)
    sent, ctx = compression.compress(tensor)
    assert sent.dtype is narrow
    assert torch.equal(compression.decompress(sent, ctx), tensor)
    assert compression.decompress(sent, ctx).dtype is dtype


@pytest.mark.parametrize("compression", [Compression.fp16, Compression.bf16, Compression.none])
def test_other_tensors_travel_as_they_are(compression):
    tensor = torch.tensor([1, 2])
    sent, ctx = compression.compress(tensor)
    assert sent is tensor
    assert compression.decompress(sent, ctx) is tensor


def test_bf16_overflows_no_sooner_than_float32():
    tensor = torch.tensor([1e30])
    sent, ctx = Compression.bf16.compress(tensor)
    assert torch.isfinite(Compression.bf16.decompress(sent, ctx)).all()
    assert not torch.isfinite(Compression.fp16.compress(tensor)[0]).all()


def test_users_may_derive_their_own():
    with pytest.raises(NotImplementedError):
        Compressor.compress(torch.ones(1))
    with pytest.raises(NotImplementedError):
        Compressor.decompress(torch.ones(1), None)
