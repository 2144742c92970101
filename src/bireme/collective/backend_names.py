"""From the name of a backend to a process group that ``torch.distributed`` does not know of.

Called by `TorchPlane`. ``dist.new_group`` needs a default group; these need none.
"""

from datetime import timedelta
from typing import Any

from torch import distributed

from bireme.errors import ConfigError

__all__ = ("make_process_group",)


def make_process_group(backend: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Return one rank's side of a new group; every rank of it calls this.

    Args:
        backend: ``gloo``, ``nccl``, or a name that ``Backend.register_backend`` has taken.
        store: A store with keys of its own for this group.
        rank: This rank in the group.
        size: Its ranks.
        timeout: Limit of the founding and of each exchange.

    Raises:
        ConfigError: There is no such backend in this build of PyTorch.
    """
    if backend == "gloo" and distributed.is_gloo_available():
        return distributed.ProcessGroupGloo(store, rank, size, timeout)
    if backend == "nccl" and distributed.is_nccl_available():
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return distributed.ProcessGroupNCCL(store, rank, size, options)
    plugin = distributed.Backend._plugins.get(backend.upper())
    if plugin is None or plugin.extended_api:
        raise ConfigError(
            f"there is no backend {backend!r} here; choose gloo, nccl (CUDA builds) or one that is "
            "registered with torch.distributed.Backend.register_backend"
        )
    return plugin.creator_fn(store, rank, size, timeout)
