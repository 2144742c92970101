"""``bireme run --check-build``: what this installation can do, in the words of ``horovodrun``."""

import importlib
import importlib.util
import shutil
from collections.abc import Mapping

from bireme.version import __version__

__all__ = ("describe_build", "find_features")


def describe_build(features: Mapping[str, Mapping[str, bool]]) -> str:
    """Return the lines of ``--check-build``.

    Args:
        features: Under each headline, which features there are.

    Example:
        >>> text = describe_build({"Available Controllers": {"MPI": False, "Gloo": True}})
        >>> text.splitlines()[2:]
        ['Available Controllers:', '    [ ] MPI', '    [X] Gloo']
    """
    parts = [f"Bireme v{__version__}:"]
    for headline, found in features.items():
        lines = [f"    [{'X' if has else ' '}] {name}" for name, has in found.items()]
        parts.append("\n".join([f"{headline}:", *lines]))
    return "\n\n".join(parts)


def find_features() -> dict[str, dict[str, bool]]:
    """Return what is here. Imports torch if it is installed."""
    has_torch = importlib.util.find_spec("torch") is not None
    has_gloo = has_nccl = False
    if has_torch:
        distributed = importlib.import_module("torch.distributed")
        has_gloo = bool(distributed.is_available() and distributed.is_gloo_available())
        has_nccl = bool(distributed.is_available() and distributed.is_nccl_available())
    return {
        "Available Frameworks": {"TensorFlow": False, "PyTorch": has_torch, "MXNet": False},
        "Available Controllers": {"MPI": False, "Gloo": has_gloo},
        "Available Tensor Operations": {
            "NCCL": has_nccl,
            "DDL": False,
            "CCL": False,
            "MPI": False,
            "Gloo": has_gloo,
        },
        "Available Launchers": {
            "local": True,
            "ssh": shutil.which("ssh") is not None,
            "mpi": shutil.which("mpirun") is not None,
            "slurm": shutil.which("srun") is not None,
            "sge": shutil.which("qsub") is not None,
        },
    }
