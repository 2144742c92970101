"""Callbacks of a run: `bireme.train.callbacks` by its public name, one and the same module."""

import sys
from typing import TYPE_CHECKING

from bireme.train import callbacks as _module

if TYPE_CHECKING:
    from bireme.train.callbacks import *  # noqa: F403

__all__ = ()

sys.modules[__name__] = _module
