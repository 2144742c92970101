"""Every operation and every question, under the module path that scripts import them from."""

from collections.abc import Iterable, Sequence

from bireme.horovod.common.basics import HorovodBasics
from bireme.horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from bireme.horovod.common.process_sets import ProcessSet as ProcessSet
from bireme.horovod.common.process_sets import add_process_set as add_process_set
from bireme.horovod.common.process_sets import global_process_set as global_process_set
from bireme.horovod.common.process_sets import remove_process_set as remove_process_set
from bireme.horovod.common.util import check_installed_version as check_installed_version
from bireme.horovod.common.util import gpu_available as gpu_available
from bireme.horovod.common.util import num_rank_is_power_2 as num_rank_is_power_2
from bireme.horovod.session import CURRENT
from bireme.horovod.torch.allreduce import HorovodAllreduce as HorovodAllreduce
from bireme.horovod.torch.allreduce import HorovodGroupedAllreduce as HorovodGroupedAllreduce
from bireme.horovod.torch.allreduce import allreduce as allreduce
from bireme.horovod.torch.allreduce import allreduce_ as allreduce_
from bireme.horovod.torch.allreduce import allreduce_async as allreduce_async
from bireme.horovod.torch.allreduce import allreduce_async_ as allreduce_async_
from bireme.horovod.torch.allreduce import grouped_allreduce as grouped_allreduce
from bireme.horovod.torch.allreduce import grouped_allreduce_ as grouped_allreduce_
from bireme.horovod.torch.allreduce import grouped_allreduce_async as grouped_allreduce_async
from bireme.horovod.torch.allreduce import grouped_allreduce_async_ as grouped_allreduce_async_
from bireme.horovod.torch.allreduce import sparse_allreduce_async as sparse_allreduce_async
from bireme.horovod.torch.compression import Compression as Compression
from bireme.horovod.torch.exchange import HorovodAlltoall as HorovodAlltoall
from bireme.horovod.torch.exchange import HorovodBroadcast as HorovodBroadcast
from bireme.horovod.torch.exchange import alltoall as alltoall
from bireme.horovod.torch.exchange import alltoall_async as alltoall_async
from bireme.horovod.torch.exchange import broadcast as broadcast
from bireme.horovod.torch.exchange import broadcast_ as broadcast_
from bireme.horovod.torch.exchange import broadcast_async as broadcast_async
from bireme.horovod.torch.exchange import broadcast_async_ as broadcast_async_
from bireme.horovod.torch.gather import HorovodAllgather as HorovodAllgather
from bireme.horovod.torch.gather import HorovodGroupedAllgather as HorovodGroupedAllgather
from bireme.horovod.torch.gather import HorovodGroupedReducescatter as HorovodGroupedReducescatter
from bireme.horovod.torch.gather import HorovodReducescatter as HorovodReducescatter
from bireme.horovod.torch.gather import allgather as allgather
from bireme.horovod.torch.gather import allgather_async as allgather_async
from bireme.horovod.torch.gather import grouped_allgather as grouped_allgather
from bireme.horovod.torch.gather import grouped_allgather_async as grouped_allgather_async
from bireme.horovod.torch.gather import grouped_reducescatter as grouped_reducescatter
from bireme.horovod.torch.gather import grouped_reducescatter_async as grouped_reducescatter_async
from bireme.horovod.torch.gather import reducescatter as reducescatter
from bireme.horovod.torch.gather import reducescatter_async as reducescatter_async
from bireme.horovod.torch.handles import barrier as barrier
from bireme.horovod.torch.handles import choose_op
from bireme.horovod.torch.handles import join as join
from bireme.horovod.torch.handles import poll as poll
from bireme.horovod.torch.handles import synchronize as synchronize

__all__ = (
    "Adasum",
    "Average",
    "Compression",
    "HorovodAllgather",
    "HorovodAllreduce",
    "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce",
    "HorovodGroupedReducescatter",
    "HorovodInternalError",
    "HorovodReducescatter",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
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
    "ccl_built",
    "check_installed_version",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "handle_average_backwards_compatibility",
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
    "num_rank_is_power_2",
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

_basics = HorovodBasics()
_handle_map = CURRENT.pending

is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product

handle_average_backwards_compatibility = choose_op


def init(
    comm: Sequence[int] | None = None, process_sets: Iterable[ProcessSet] | str | None = None
) -> None:
    """Start: meet the other processes of the job. A second call while it is up does nothing.

    Args:
        comm: Ranks that form a job of their own; None: all.
        process_sets: Sets to make known; ``"dynamic"``, as None, makes none. Sets may be added
            later either way.

    Raises:
        ConfigError: A ValueError; the environment or an argument is wrong.
        HorovodInternalError: The other processes did not come.
    """
    _basics.init(comm, process_sets)


def shutdown() -> None:
    """Leave the job. Operations under way end with an error; ``init`` may be called again."""
    _basics.shutdown()
