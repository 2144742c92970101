"""The names that Horovod's users know, each calling :mod:`bireme.collective`.

``import bireme.horovod.torch as hvd`` takes the place of ``import horovod.torch as hvd``; module
paths below ``horovod`` are the same below ``bireme.horovod``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bireme.horovod.runner import run as run

__all__ = ("__version__", "run")

__version__ = "0.28.1"
"""The release of Horovod whose interface this is."""


def __getattr__(name: str) -> Any:
    if name == "run":
        from bireme.horovod.runner import run

        return run
    raise AttributeError(f"module 'bireme.horovod' has no attribute {name!r}")
