"""How the values of one key become one: reducers, which know tensors but no store."""

from bireme.kvstore.reduce.base import Reducer as Reducer
from bireme.kvstore.reduce.base import Sum as Sum
from bireme.kvstore.reduce.compressed import CompressedReducer as CompressedReducer
from bireme.kvstore.reduce.device import DeviceReducer as DeviceReducer
from bireme.kvstore.reduce.host import HostReducer as HostReducer
from bireme.kvstore.reduce.rows import sum_rows as sum_rows
from bireme.kvstore.reduce.rows import to_dense as to_dense

__all__ = (
    "CompressedReducer",
    "DeviceReducer",
    "HostReducer",
    "Reducer",
    "Sum",
    "sum_rows",
    "to_dense",
)
