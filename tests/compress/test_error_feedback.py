import pytest
import torch

from bireme.compress import ErrorFeedback, Half, OneBit, Payload, TwoBit
from bireme.errors import ConfigError, UnsupportedError


class Nothing:
    """A code that sends nothing: everything stays behind."""

    name = "nothing"

    def check(self, grad):
        if grad.dim() != 1:
            raise UnsupportedError("flat gradients only")

    def encode(self, grad, residual):
        residual += grad
        return Payload(torch.zeros(0, dtype=torch.uint8), grad.shape, grad.dtype)

    def decompress(self, payload, out=None, *, accumulate=False):
        return torch.zeros(payload.shape)

    def payload_bytes(self, numel):
        return 0

    def to_params(self):
        return {"type": "nothing"}


def test_any_quantizer_will_do():
    compressor = ErrorFeedback(Nothing())
    grad = torch.ones(3)
    _, state = compressor.compress(grad, compressor.init(grad))
    _, state = compressor.compress(grad, state)
    assert torch.equal(state, torch.full((3,), 2.0))
    assert compressor.name == "nothing"
    assert compressor.payload_bytes(3) == 0
    with pytest.raises(UnsupportedError, match="flat"):
        compressor.init(torch.ones(3, 3))


def test_state_is_a_new_residual_of_zeros():
    grad = torch.ones(4, 3).t().requires_grad_()
    state = ErrorFeedback(TwoBit()).init(grad)
    assert torch.equal(state, torch.zeros(3, 4))
    assert state.is_contiguous()
    assert not state.requires_grad


def test_state_keeps_its_memory():
    grad = torch.ones(3)
    state = ErrorFeedback(TwoBit()).init(grad)
    assert ErrorFeedback(TwoBit()).compress(grad, state)[1] is state


def test_keys_do_not_mix():
    compressor = ErrorFeedback(TwoBit(0.5))
    a, b = compressor.init(torch.zeros(2)), compressor.init(torch.zeros(2))
    _, a = compressor.compress(torch.tensor([0.25, 0.25]), a)
    assert torch.equal(b, torch.zeros(2))


def test_missing_state_says_how_to_make_one():
    with pytest.raises(ConfigError, match=r"got None; make it once with init\(grad\)"):
        ErrorFeedback(TwoBit()).compress(torch.zeros(2), None)


@pytest.mark.parametrize("wrong", [None, "2bit", TwoBit, ErrorFeedback(TwoBit())], ids=repr)
def test_only_quantizers_are_wrapped(wrong):
    with pytest.raises(ConfigError, match="wraps a quantizer"):
        ErrorFeedback(wrong)


def test_params_name_the_feedback_only_where_the_type_does_not_imply_it():
    assert ErrorFeedback(TwoBit(0.25)).to_params() == {"type": "2bit", "threshold": 0.25}
    assert ErrorFeedback(OneBit(0.5)).to_params() == {"type": "1bit", "threshold": 0.5}
    assert ErrorFeedback(Half()).to_params() == {"type": "fp16", "error_feedback": True}
