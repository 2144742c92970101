"""Gradient compression: fewer bytes between devices and machines, for a little precision.

Start with :func:`create`, which reads the same parameters as ``set_gradient_compression``. A
compressor is a set of pure functions over explicit state; see :class:`Compressor`. To add a code
of your own, write a :class:`Quantizer` and wrap it in :class:`ErrorFeedback`.
"""

from bireme.compress.base import Compressor as Compressor
from bireme.compress.base import Params as Params
from bireme.compress.base import Payload as Payload
from bireme.compress.base import Quantizer as Quantizer
from bireme.compress.base import State as State
from bireme.compress.error_feedback import ErrorFeedback as ErrorFeedback
from bireme.compress.factory import create as create
from bireme.compress.half import Half as Half
from bireme.compress.onebit import OneBit as OneBit
from bireme.compress.twobit import TwoBit as TwoBit

__all__ = (
    "Compressor",
    "ErrorFeedback",
    "Half",
    "OneBit",
    "Params",
    "Payload",
    "Quantizer",
    "State",
    "TwoBit",
    "create",
)
