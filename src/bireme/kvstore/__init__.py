"""Keyed stores: push gradients or values, pull the result.

:func:`create` makes a store by name; ``bireme.kv`` is this same package.
"""

from bireme.kvstore.base import Key as Key
from bireme.kvstore.base import KVStore as KVStore
from bireme.kvstore.base import KVStoreBase as KVStoreBase
from bireme.kvstore.base import Updater as Updater
from bireme.kvstore.base import Values as Values
from bireme.kvstore.device import DeviceStore as DeviceStore
from bireme.kvstore.factory import create as create
from bireme.kvstore.factory import run_role as run_role
from bireme.kvstore.local import LocalStore as LocalStore
from bireme.kvstore.registry import register as register
from bireme.update.spec import OptimizerSpec as OptimizerSpec

__all__ = (
    "DeviceStore",
    "KVStore",
    "KVStoreBase",
    "Key",
    "LocalStore",
    "OptimizerSpec",
    "Updater",
    "Values",
    "create",
    "register",
    "run_role",
)
