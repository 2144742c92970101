"""Bireme: train one PyTorch model on many devices and many machines.

Names are imported on first use, so that ``import bireme`` and the command line start without
torch. The table below is the whole public face.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bireme.version import __version__

if TYPE_CHECKING:
    from bireme import compress as compress
    from bireme import data as data
    from bireme import kvstore as kv
    from bireme import kvstore as kvstore
    from bireme import nn as nn
    from bireme.consistency.local import LocalSteps as LocalSteps
    from bireme.horovod.running import run as run
    from bireme.kvstore.factory import run_role as run_role
    from bireme.train import callbacks as callbacks
    from bireme.train import metrics as metrics
    from bireme.train.module import Module as Module
    from bireme.train.split import split_and_load as split_and_load
    from bireme.train.split import split_data as split_data
    from bireme.train.trainer import Trainer as Trainer
    from bireme.types import Context as Context
    from bireme.types import cpu as cpu
    from bireme.types import gpu as gpu
    from bireme.update import state_dicts as optimizer_states
    from bireme.update.spec import OptimizerSpec as OptimizerSpec

__all__ = (
    "Context",
    "LocalSteps",
    "Module",
    "OptimizerSpec",
    "Trainer",
    "__version__",
    "callbacks",
    "compress",
    "cpu",
    "data",
    "gpu",
    "kv",
    "kvstore",
    "metrics",
    "nn",
    "optimizer_states",
    "run",
    "run_role",
    "split_and_load",
    "split_data",
)

_MODULES = {
    "callbacks": "bireme.callbacks",
    "compress": "bireme.compress",
    "data": "bireme.data",
    "kv": "bireme.kv",
    "kvstore": "bireme.kvstore",
    "metrics": "bireme.metrics",
    "nn": "bireme.nn",
    "optimizer_states": "bireme.optimizer_states",
}
_NAMES = {
    "Context": "bireme.types",
    "LocalSteps": "bireme.consistency.local",
    "Module": "bireme.train.module",
    "OptimizerSpec": "bireme.update.spec",
    "Trainer": "bireme.train.trainer",
    "cpu": "bireme.types",
    "gpu": "bireme.types",
    "run": "bireme.horovod.running",
    "run_role": "bireme.kvstore.factory",
    "split_and_load": "bireme.train.split",
    "split_data": "bireme.train.split",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(_MODULES[name])
    elif name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
    else:
        raise AttributeError(f"module 'bireme' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
