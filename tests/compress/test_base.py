import torch

from bireme.compress import Compressor, ErrorFeedback, Half, Payload, Quantizer, TwoBit


def test_size_bytes_counts_what_travels():
    for numel, size_bytes in ((3, 6), (0, 0)):
        data = torch.zeros(numel, dtype=torch.float16)
        assert Payload(data, torch.Size([numel]), torch.float32).size_bytes == size_bytes


def test_to_the_same_device_is_the_same_payload():
    payload = Payload(torch.zeros(4, dtype=torch.uint8), torch.Size([16]), torch.float32)
    assert payload.to("cpu") is payload


def test_to_another_device_moves_the_data_only():
    payload = Payload(torch.zeros(4, dtype=torch.uint8), torch.Size([16]), torch.float32)
    moved = payload.to("meta")
    assert moved.data.is_meta
    assert (moved.shape, moved.dtype) == (payload.shape, payload.dtype)
    assert not payload.data.is_meta


def test_a_bare_code_is_no_compressor_and_a_cast_is_both():
    assert isinstance(TwoBit(), Quantizer)
    assert not isinstance(TwoBit(), Compressor)
    assert isinstance(Half(), Quantizer)
    assert isinstance(Half(), Compressor)
    assert not isinstance(ErrorFeedback(TwoBit()), Quantizer)
