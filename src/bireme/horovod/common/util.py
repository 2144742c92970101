"""Small questions that scripts ask ``horovod.common.util``: what is built, what is installed."""

import functools
import importlib
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

from bireme.errors import ConfigError
from bireme.horovod import environment

__all__ = (
    "EXTENSIONS",
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
)

EXTENSIONS = ["tensorflow", "torch", "mxnet"]
_HERE = "torch"

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _cache(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return ``function`` with the results that it has given remembered."""
    remembered: Callable[_P, _R] = functools.cache(function)  # type: ignore[assignment]
    return remembered


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether Horovod's names work for a framework: for ``torch`` they do."""
    del verbose
    return ext_base_name == _HERE


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raise ``ImportError`` for a framework other than torch; nothing has to be built for torch."""
    del ext_env_var, pkg_path, args
    if ext_name.rpartition(".")[2] != _HERE:
        raise ImportError(f"Extension {ext_name} has not been built: Bireme has horovod.torch only")


def check_installed_version(
    name: str, version: str, exception: BaseException | None = None
) -> None:
    """Do nothing: no framework has been built against."""
    del name, version, exception


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether torch has a GPU here."""
    return extension_available(ext_base_name, verbose) and bool(_torch().cuda.is_available())


def mpi_built(verbose: bool = False) -> bool:
    """Return False: MPI may start the processes, and does not carry their tensors."""
    del verbose
    return False


def gloo_built(verbose: bool = False) -> bool:
    """Return True: CPU operations work without MPI."""
    del verbose
    return True


def nccl_built(verbose: bool = False) -> bool:
    """Return whether torch brings NCCL and there is a GPU."""
    del verbose
    torch = _torch()
    return bool(torch.cuda.is_available() and torch.distributed.is_nccl_available())


def ddl_built(verbose: bool = False) -> bool:
    """Return False."""
    del verbose
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Return False."""
    del verbose
    return False


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Set environment variables for the length of a ``with``; those of ``None`` are left alone."""
    with environment.temporarily(kwargs):
        yield


class _Ops(Protocol):
    Average: int
    Sum: int


def get_average_backwards_compatibility_fun(
    reduce_ops: _Ops,
) -> Callable[[int | None, bool | None], int]:
    """Return what makes one operation of ``op`` and of the older ``average``."""

    def choose(op: int | None, average: bool | None) -> int:
        if op is not None and average is not None:
            raise ConfigError(
                "The op parameter supersedes average. Please provide only one of them."
            )
        if op is not None:
            return op
        if average is None:
            return reduce_ops.Average
        warnings.warn(
            "Parameter `average` has been replaced with `op`: hvd.Average or hvd.Sum",
            DeprecationWarning,
            stacklevel=_level_of_script(),
        )
        return reduce_ops.Average if average else reduce_ops.Sum

    return choose


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether a number is a power of two; Adasum works for the others too."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: list[Any], n: int) -> list[list[Any]]:  # noqa: E741
    """Return ``n`` runs of a list, as even as can be, the longer ones first.

    Example:
        >>> split_list([1, 2, 3, 4, 5], 2)
        [[1, 2, 3], [4, 5]]
    """
    least, more = divmod(len(l), n)
    bounds = [part * least + min(part, more) for part in range(n + 1)]
    return [l[low:high] for low, high in itertools.pairwise(bounds)]


def is_iterable(x: object) -> bool:
    """Return whether ``x`` can be iterated over."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def _level_of_script() -> int:
    """Return how far above the caller of this the first frame outside of this package is.

    Python shows deprecations where the script's own lines cause them, and hides others.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("bireme."):
        level, frame = level + 1, frame.f_back
    return level


def _torch() -> Any:
    return importlib.import_module("torch")
