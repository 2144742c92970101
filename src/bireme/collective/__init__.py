"""Collectives between processes: named operations, and the bank inside one machine.

The names load on first use, since torch comes with them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bireme.collective.base import Collectives as Collectives
    from bireme.collective.handles import Handle as Handle
    from bireme.collective.single import SingleProcess as SingleProcess
    from bireme.collective.start import start as start
    from bireme.types.topology import ReduceOp as ReduceOp
    from bireme.types.topology import Topology as Topology

__all__ = (
    "Collectives",
    "Handle",
    "ReduceOp",
    "SingleProcess",
    "Topology",
    "start",
)

_NAMES = {
    "Collectives": "bireme.collective.base",
    "Handle": "bireme.collective.handles",
    "ReduceOp": "bireme.types.topology",
    "SingleProcess": "bireme.collective.single",
    "Topology": "bireme.types.topology",
    "start": "bireme.collective.start",
}


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'bireme.collective' has no attribute {name!r}")
    value = getattr(importlib.import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
