"""``import bireme.horovod.torch as hvd``: every name of ``horovod.torch``, on today's PyTorch."""

import torch

from bireme.horovod.torch import elastic as elastic
from bireme.horovod.torch.compression import Compression as Compression
from bireme.horovod.torch.functions import allgather_object as allgather_object
from bireme.horovod.torch.functions import broadcast_object as broadcast_object
from bireme.horovod.torch.functions import broadcast_optimizer_state as broadcast_optimizer_state
from bireme.horovod.torch.functions import broadcast_parameters as broadcast_parameters
from bireme.horovod.torch.mpi_ops import Adasum as Adasum
from bireme.horovod.torch.mpi_ops import Average as Average
from bireme.horovod.torch.mpi_ops import HorovodInternalError as HorovodInternalError
from bireme.horovod.torch.mpi_ops import Max as Max
from bireme.horovod.torch.mpi_ops import Min as Min
from bireme.horovod.torch.mpi_ops import ProcessSet as ProcessSet
from bireme.horovod.torch.mpi_ops import Product as Product
from bireme.horovod.torch.mpi_ops import Sum as Sum
from bireme.horovod.torch.mpi_ops import add_process_set as add_process_set
from bireme.horovod.torch.mpi_ops import allgather as allgather
from bireme.horovod.torch.mpi_ops import allgather_async as allgather_async
from bireme.horovod.torch.mpi_ops import allreduce as allreduce
from bireme.horovod.torch.mpi_ops import allreduce_ as allreduce_
from bireme.horovod.torch.mpi_ops import allreduce_async as allreduce_async
from bireme.horovod.torch.mpi_ops import allreduce_async_ as allreduce_async_
from bireme.horovod.torch.mpi_ops import alltoall as alltoall
from bireme.horovod.torch.mpi_ops import alltoall_async as alltoall_async
from bireme.horovod.torch.mpi_ops import barrier as barrier
from bireme.horovod.torch.mpi_ops import broadcast as broadcast
from bireme.horovod.torch.mpi_ops import broadcast_ as broadcast_
from bireme.horovod.torch.mpi_ops import broadcast_async as broadcast_async
from bireme.horovod.torch.mpi_ops import broadcast_async_ as broadcast_async_
from bireme.horovod.torch.mpi_ops import ccl_built as ccl_built
from bireme.horovod.torch.mpi_ops import cross_rank as cross_rank
from bireme.horovod.torch.mpi_ops import cross_size as cross_size
from bireme.horovod.torch.mpi_ops import cuda_built as cuda_built
from bireme.horovod.torch.mpi_ops import ddl_built as ddl_built
from bireme.horovod.torch.mpi_ops import global_process_set as global_process_set
from bireme.horovod.torch.mpi_ops import gloo_built as gloo_built
from bireme.horovod.torch.mpi_ops import gloo_enabled as gloo_enabled
from bireme.horovod.torch.mpi_ops import grouped_allgather as grouped_allgather
from bireme.horovod.torch.mpi_ops import grouped_allgather_async as grouped_allgather_async
from bireme.horovod.torch.mpi_ops import grouped_allreduce as grouped_allreduce
from bireme.horovod.torch.mpi_ops import grouped_allreduce_ as grouped_allreduce_
from bireme.horovod.torch.mpi_ops import grouped_allreduce_async as grouped_allreduce_async
from bireme.horovod.torch.mpi_ops import grouped_allreduce_async_ as grouped_allreduce_async_
from bireme.horovod.torch.mpi_ops import grouped_reducescatter as grouped_reducescatter
from bireme.horovod.torch.mpi_ops import grouped_reducescatter_async as grouped_reducescatter_async
from bireme.horovod.torch.mpi_ops import init as init
from bireme.horovod.torch.mpi_ops import is_homogeneous as is_homogeneous
from bireme.horovod.torch.mpi_ops import is_initialized as is_initialized
from bireme.horovod.torch.mpi_ops import join as join
from bireme.horovod.torch.mpi_ops import local_rank as local_rank
from bireme.horovod.torch.mpi_ops import local_size as local_size
from bireme.horovod.torch.mpi_ops import mpi_built as mpi_built
from bireme.horovod.torch.mpi_ops import mpi_enabled as mpi_enabled
from bireme.horovod.torch.mpi_ops import mpi_threads_supported as mpi_threads_supported
from bireme.horovod.torch.mpi_ops import nccl_built as nccl_built
from bireme.horovod.torch.mpi_ops import poll as poll
from bireme.horovod.torch.mpi_ops import rank as rank
from bireme.horovod.torch.mpi_ops import reducescatter as reducescatter
from bireme.horovod.torch.mpi_ops import reducescatter_async as reducescatter_async
from bireme.horovod.torch.mpi_ops import remove_process_set as remove_process_set
from bireme.horovod.torch.mpi_ops import rocm_built as rocm_built
from bireme.horovod.torch.mpi_ops import shutdown as shutdown
from bireme.horovod.torch.mpi_ops import size as size
from bireme.horovod.torch.mpi_ops import sparse_allreduce_async as sparse_allreduce_async
from bireme.horovod.torch.mpi_ops import start_timeline as start_timeline
from bireme.horovod.torch.mpi_ops import stop_timeline as stop_timeline
from bireme.horovod.torch.mpi_ops import synchronize as synchronize
from bireme.horovod.torch.optimizer import DistributedOptimizer as DistributedOptimizer
from bireme.horovod.torch.sync_batch_norm import SyncBatchNorm as SyncBatchNorm

__all__ = (
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
)


def _check_has_gpu() -> bool:
    """Return whether torch has a GPU; ``horovod.common.util`` asks."""
    return torch.cuda.is_available()
