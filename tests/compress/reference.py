"""The codes in slow, plain Python, written from their definition, to compare the fast ones with."""

import numpy as np


def encode_twobit(grad, residual, threshold):
    """Return the bytes and the new residual of MXNet's rule, for finite input."""
    t = np.float32(threshold)
    codes, left = [], []
    for total in np.asarray(residual, np.float32) + np.asarray(grad, np.float32):
        code, sent = (3, t) if total >= t else (2, -t) if total <= -t else (0, np.float32(0))
        codes.append(code)
        left.append(total - sent)
    return pack(codes, 2), np.array(left, np.float32)


def encode_onebit(grad, residual, threshold):
    """Return the bytes and the new residual of MXNet's rule, for finite input."""
    t = np.float32(threshold)
    totals = np.asarray(residual, np.float32) + np.asarray(grad, np.float32)
    bits = [int(total > t) for total in totals]
    left = [total - np.float32(2 * bit - 1) for total, bit in zip(totals, bits, strict=True)]
    return pack(bits, 1), np.array(left, np.float32)


def pack(codes, width):
    """Return codes of ``width`` bits as bytes, first in the highest bits, in 4-byte steps."""
    text = "".join(f"{code:0{width}b}" for code in codes)
    text += "0" * (-len(text) % 32)
    return bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))
