"""The keyed stores: `bireme.kvstore` by its public name, one and the same module."""

import sys
from typing import TYPE_CHECKING

from bireme import kvstore as _module

if TYPE_CHECKING:
    from bireme.kvstore import *  # noqa: F403

__all__ = ()

sys.modules[__name__] = _module
