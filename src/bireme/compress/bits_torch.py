"""Packs and unpacks 1bit and 2bit codes with torch operations, on any device.

For CUDA tensors; the bytes are those of :mod:`bireme.compress.bits_numba`, which the tests prove
on CPU tensors. Nothing here copies between host and device or waits for the device, except
:func:`encode_onebit`, whose count the host must see. Temporaries are at most as large as the
gradient.

Called through :func:`bireme.compress.bits.bits_for`.
"""

import torch

__all__ = ("decode_onebit", "decode_twobit", "encode_onebit", "encode_twobit")


def encode_twobit(
    grad: torch.Tensor, residual: torch.Tensor, data: torch.Tensor, threshold: float
) -> None:
    """As :meth:`bireme.compress.bits.Bits.encode_twobit`."""
    total = residual + grad
    finite = total.isfinite()
    above = (total >= threshold) & finite
    below = (total <= -threshold) & finite
    sent = above.to(total.dtype).sub_(below.to(total.dtype)).mul_(threshold)
    torch.where(finite, total.sub_(sent), residual, out=residual)
    # 11 above, 10 below, 01 not finite, 00 between.
    _pack(3 * above.byte() + 2 * below.byte() + (~finite).byte(), 2, data)


def decode_twobit(
    data: torch.Tensor, out: torch.Tensor, threshold: float, accumulate: bool
) -> None:
    """As :meth:`bireme.compress.bits.Bits.decode_twobit`."""
    codes = _unpack(data, 2)[: out.numel()]
    values = torch.zeros_like(out)
    values.masked_fill_(codes == 3, threshold)
    values.masked_fill_(codes == 2, -threshold)
    values.masked_fill_(codes == 1, torch.nan)
    _deliver(values, out, accumulate)


def encode_onebit(
    grad: torch.Tensor, residual: torch.Tensor, data: torch.Tensor, threshold: float
) -> int:
    """As :meth:`bireme.compress.bits.Bits.encode_onebit`."""
    total = residual + grad
    finite = total.isfinite()
    torch.where(finite, total, residual, out=total)
    above = total > threshold
    sent = above.to(total.dtype).mul_(2).sub_(1)
    torch.sub(total, sent, out=residual)
    _pack(above.byte(), 1, data)
    return int((~finite).sum())


def decode_onebit(data: torch.Tensor, out: torch.Tensor, accumulate: bool) -> None:
    """As :meth:`bireme.compress.bits.Bits.decode_onebit`."""
    codes = _unpack(data, 1)[: out.numel()]
    _deliver(codes.to(out.dtype).mul_(2).sub_(1), out, accumulate)


def _pack(codes: torch.Tensor, width: int, data: torch.Tensor) -> None:
    """Write ``codes`` of ``width`` bits to the bytes of ``data``, the first in the highest bits."""
    padded = torch.zeros(data.numel() * (8 // width), dtype=torch.uint8, device=data.device)
    padded[: codes.numel()] = codes
    lanes = padded.view(-1, 8 // width)
    shifted = lanes.bitwise_left_shift(_shifts(width, data.device))
    torch.sum(shifted, dim=1, dtype=torch.uint8, out=data)


def _unpack(data: torch.Tensor, width: int) -> torch.Tensor:
    """Return the codes that :func:`_pack` put into ``data``, one a byte."""
    lanes = data.unsqueeze(1).bitwise_right_shift(_shifts(width, data.device))
    return lanes.bitwise_and_(2**width - 1).view(-1)


def _shifts(width: int, device: torch.device) -> torch.Tensor:
    return torch.arange(8 - width, -1, -width, dtype=torch.uint8, device=device)


def _deliver(values: torch.Tensor, out: torch.Tensor, accumulate: bool) -> None:
    if accumulate:
        out.add_(values)
    else:
        out.copy_(values)
