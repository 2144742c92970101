"""Makes ``torch.distributed`` know the backend ``bireme``.

``dist.init_process_group("bireme")`` works after `register_backend`, which installed copies of the
package call whenever torch is imported (an entry point of the group ``torch.backends``).
Nothing else of the package is imported until a group is made.
"""

from datetime import timedelta
from typing import Any

__all__ = ("BACKEND", "autoload", "register_backend")

BACKEND = "bireme"


def register_backend() -> None:
    """Register the backend; a second call changes nothing.

    Example:
        >>> import torch.distributed as dist
        >>> register_backend(); dist.is_backend_available("bireme")
        True
    """
    import torch.distributed as dist

    if not dist.is_available() or BACKEND.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(BACKEND, _create, devices=["cpu"])


def autoload() -> None:
    """Register the backend while torch is being imported; called by torch."""
    register_backend()


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from bireme.collective.founding import found_group

    return found_group(store, rank, size, timeout)
