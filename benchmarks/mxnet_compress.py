"""MXNet's side of the compression benchmark: its own 2bit code, called directly.

Runs in MXNet's interpreter (see ``mxnet_peer.py``). The wheel offers no operator for it, and a
push through a store would time copies and sums too. But ``libmxnet.so`` exports the class that
every store calls, ``mxnet::kvstore::GradientCompression``, so this program makes one and calls its
Quantize and Dequantize on NDArrays: exactly the work that a store would do, on MXNet's engine and
its OpenMP threads, and nothing else.
"""

import ctypes
import time
import zlib
from collections.abc import Callable

import mxnet as mx
import numpy as np

from mxnet_peer import serve

_CLASS = "_ZN5mxnet7kvstore19GradientCompression"


class TwoBit:
    """One ``GradientCompression`` object and the arrays of one key.

    Args:
        grad: The gradient; every call of :meth:`compress` takes this one.
        threshold: Of the 2bit code.
    """

    def __init__(self, grad: np.ndarray, threshold: float) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._quantize = _method("8QuantizeERKNS_7NDArrayEPS2_S5_i", *[pointer] * 4, number)
        self._dequantize = _method("10DequantizeERKNS_7NDArrayEPS2_i", *[pointer] * 3, number)
        # A virtual table pointer, an enum and a float; MXNet's constructor fills it in.
        self._memory = ctypes.create_string_buffer(256)
        self._self = ctypes.addressof(self._memory)
        _method("C1Ev", pointer)(self._self)
        _method("20SetTwoBitCompressionEf", pointer, ctypes.c_float)(self._self, threshold)
        self.grad = mx.nd.array(grad, dtype="float32")
        self.residual = mx.nd.zeros(grad.size)
        self.data = mx.nd.zeros(-(-grad.size // 16))
        self.out = mx.nd.zeros(grad.size)
        self.total = mx.nd.zeros(grad.size)
        mx.nd.waitall()

    def compress(self) -> None:
        """Quantize ``grad`` into ``data``, by way of ``residual``, and wait for it."""
        arrays = self.grad.handle, self.data.handle, self.residual.handle
        self._quantize(self._self, *arrays, 0)
        mx.nd.waitall()

    def decompress(self) -> None:
        """Dequantize ``data`` into ``out``, and wait for it."""
        self._dequantize(self._self, self.data.handle, self.out.handle, 0)
        mx.nd.waitall()

    def add(self) -> None:
        """Add what ``data`` stands for to ``total``, by way of ``out``, and wait for it."""
        self._dequantize(self._self, self.data.handle, self.out.handle, 0)
        self.total += self.out
        mx.nd.waitall()


_open = {}


def prepare(seed: int, numel: int, threshold: float) -> dict[str, int]:
    """Make the gradient that both sides compress."""
    grad = np.random.default_rng(seed).normal(0.0, 0.3, numel).astype(np.float32)
    _open["key"] = TwoBit(grad, threshold)
    return {}


def compress() -> float:
    """Return the seconds of one Quantize."""
    return _seconds(_open["key"].compress)


def decompress() -> float:
    """Return the seconds of one Dequantize."""
    return _seconds(_open["key"].decompress)


def add() -> float:
    """Return the seconds of what MXNet does to add a payload up: Dequantize, then add."""
    return _seconds(_open["key"].add)


def digest() -> dict[str, int]:
    """Return checksums of the last payload and residual."""
    key = _open["key"]
    arrays = {"data": key.data, "residual": key.residual, "out": key.out}
    return {name: zlib.crc32(array.asnumpy().tobytes()) for name, array in arrays.items()}


def golden(threshold: float, grads: list[str]) -> dict[str, list[dict[str, str]]]:
    """Return data, residual and result, as hexadecimal, after each of the steps ``grads``."""
    steps = []
    key = TwoBit(np.frombuffer(bytes.fromhex(grads[0]), np.float32), threshold)
    for grad in grads:
        key.grad[:] = mx.nd.array(np.frombuffer(bytes.fromhex(grad), np.float32))
        key.compress()
        key.decompress()
        arrays = {"data": key.data, "residual": key.residual, "out": key.out}
        steps.append({name: array.asnumpy().tobytes().hex() for name, array in arrays.items()})
    return {"steps": steps}


def _method(name: str, *types: type) -> ctypes._CFuncPtr:
    function = getattr(mx.base._LIB, _CLASS + name)
    function.argtypes = types
    function.restype = None
    return function


def _seconds(run: Callable[[], None]) -> float:
    start_s = time.perf_counter()
    run()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    serve(
        {
            "prepare": prepare,
            "compress": compress,
            "decompress": decompress,
            "add": add,
            "digest": digest,
            "golden": golden,
        }
    )
