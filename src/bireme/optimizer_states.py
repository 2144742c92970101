"""Saved optimizer states for plain torch: `bireme.update.state_dicts` by its public name."""

import sys
from typing import TYPE_CHECKING

from bireme.update import state_dicts as _module

if TYPE_CHECKING:
    from bireme.update.state_dicts import *  # noqa: F403

__all__ = ()

sys.modules[__name__] = _module
