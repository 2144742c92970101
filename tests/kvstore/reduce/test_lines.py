import pytest
import torch

from bireme.kvstore.reduce import HostReducer, Sum, host, lines
from bireme.kvstore.reduce.lines import ITEM_BYTES, can_add, code_for


def test_sizes_are_torchs():
    assert all(getattr(torch, name).itemsize == size for name, size in ITEM_BYTES.items())


@pytest.fixture(autouse=True)
def no_memory():
    yield
    can_add.cache_clear()
    code_for.cache_clear()


def test_what_the_processor_lacks_is_told(monkeypatch):
    monkeypatch.setattr(lines.platform, "machine", lambda: "x86_64")
    for features, able in (({}, False), ({"f16c": False}, False), ({"f16c": True}, True)):
        monkeypatch.setattr(
            lines.binding, "get_host_cpu_features", lambda features=features: features
        )
        can_add.cache_clear()
        assert can_add("float16") is able
        assert can_add("bfloat16")
    can_add.cache_clear()
    monkeypatch.setattr(lines.platform, "machine", lambda: "aarch64")
    assert can_add("float16")


def test_a_change_of_the_module_is_a_change_of_the_code(monkeypatch):
    before = code_for("int8")
    monkeypatch.setattr(lines.inspect, "getsource", lambda module: "other")
    code_for.cache_clear()
    assert code_for("int8") != before


def every_half(dtype: torch.dtype) -> torch.Tensor:
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    return bits.view(dtype)


@pytest.mark.parametrize("native", [True, False], ids=["lines", "torch"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shift", [0, 1, 4_097, 30_011])
def test_halves_round_as_torch_does(monkeypatch, dtype, shift, native):
    monkeypatch.setattr(host, "can_add", lambda kind: native)
    left = every_half(dtype)
    right = left.roll(shift)
    out = torch.empty_like(left)
    HostReducer().run([Sum("k", [left, right, left], [out])])
    expected = (left.float() + right.float() + left.float()).to(dtype)
    same = (out.view(torch.int16) == expected.view(torch.int16)) | (out.isnan() & expected.isnan())
    assert same.all()
