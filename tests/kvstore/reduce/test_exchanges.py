"""Sums over workers, as they are or in 16 bits."""

import pytest
import torch
from tests.collective.ranks import on_ranks, started

from bireme.collective import SingleProcess
from bireme.compress import ErrorFeedback, Half, OneBit, TwoBit
from bireme.errors import UnsupportedError
from bireme.kvstore.reduce.exchanges import CastExchange, PlainExchange


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("code", [torch.float16, torch.bfloat16], ids=str)
def test_a_sum_travels_in_16_bits_and_is_alike_everywhere(dtype, code):
    with started(3) as engines:

        def run(rank):
            exchange = CastExchange(engines[rank], "x", Half(code), "allreduce")
            total = torch.linspace(-3, 3, 50, dtype=dtype) * (rank + 1)
            exchange.begin("a", total).wait()
            return total

        base = torch.linspace(-3, 3, 50, dtype=dtype)
        expected = sum((base * (rank + 1)).to(code).float() for rank in range(3)).to(code)
        first, *others = on_ranks(3, run)
        torch.testing.assert_close(
            first, expected.to(dtype), rtol=2 * torch.finfo(code).eps, atol=0
        )
        assert torch.equal(first, first.to(code).to(dtype))
        assert all(torch.equal(first, other) for other in others)


def test_what_the_cast_loses_is_sent_later_with_error_feedback():
    exchange = CastExchange(SingleProcess(), "x", ErrorFeedback(Half(torch.bfloat16)), "allreduce")
    received = torch.zeros(1)
    for _ in range(64):
        total = torch.tensor([1.001])
        exchange.check("a", total)
        exchange.begin("a", total).wait()
        received += total
    torch.testing.assert_close(received, torch.tensor([64 * 1.001]), rtol=2e-4, atol=0)
    exchange.forget()
    total = torch.tensor([1.001])
    exchange.begin("a", total).wait()
    assert total.item() == 1.0


@pytest.mark.parametrize(
    "compressor", [ErrorFeedback(TwoBit(0.5)), ErrorFeedback(OneBit(0.5))], ids=["2bit", "1bit"]
)
def test_codes_that_cannot_be_added_are_refused(compressor):
    with pytest.raises(UnsupportedError, match=r"cannot be added.*fp16.* or 'bf16'.*dist_sync"):
        CastExchange(SingleProcess(), "x", compressor, "allreduce")


def test_integers_are_refused_where_they_would_be_cast():
    value = torch.ones(2, dtype=torch.int32)
    PlainExchange(SingleProcess(), "x").check("a", value)
    with pytest.raises(UnsupportedError, match="int32"):
        CastExchange(SingleProcess(), "x", Half(), "allreduce").check("a", value)
