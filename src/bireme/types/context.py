"""Contexts: the places where a replica computes.

Pure values, without torch: the command line and the launchers name devices too.
``Context.torch_name`` is what ``torch.device`` takes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bireme.errors import ConfigError

__all__ = ("Context", "cpu", "gpu", "parse_contexts")

_NAME = re.compile(r"(?P<kind>cpu|gpu|cuda)(?:\((?P<call>\d+)\)|:(?P<colon>\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Context:
    """A place to compute: ``cpu(0)``, ``gpu(2)``.

    CPU contexts share the host's memory and differ by index only, so that several
    replicas can be tried and tested on a machine without GPUs.

    Args:
        kind: ``"cpu"`` or ``"gpu"``.
        index: Number of the device, >= 0.

    Raises:
        ConfigError: ``kind`` or ``index`` is not valid.

    Example:
        >>> Context("gpu", 2)
        gpu(2)
        >>> Context("gpu", 2).torch_name
        'cuda:2'
    """

    kind: Literal["cpu", "gpu"]
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("cpu", "gpu"):
            raise ConfigError(f"context kind must be 'cpu' or 'gpu', got {self.kind!r}")
        if isinstance(self.index, bool) or not isinstance(self.index, int) or self.index < 0:
            raise ConfigError(f"context index must be an integer >= 0, got {self.index!r}")

    @property
    def torch_name(self) -> str:
        """The device string that ``torch.device`` takes: ``"cpu"`` or ``"cuda:2"``."""
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"

    def __repr__(self) -> str:
        return f"{self.kind}({self.index})"

    @classmethod
    def parse(cls, text: str) -> "Context":
        """Read ``"gpu(2)"``, ``"cuda:2"``, ``"cpu"`` or ``"cpu:1"``.

        Raises:
            ConfigError: ``text`` is none of these.
        """
        match = _NAME.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"cannot read {text!r} as a context; write cpu(0), gpu(2), cpu:0 or cuda:2"
            )
        kind: Literal["cpu", "gpu"] = "cpu" if match["kind"] == "cpu" else "gpu"
        return cls(kind, int(match["call"] or match["colon"] or 0))


def cpu(index: int = 0) -> Context:
    """Return the CPU context ``index``.

    Example:
        >>> cpu(1)
        cpu(1)
    """
    return Context("cpu", index)


def gpu(index: int = 0) -> Context:
    """Return the GPU context ``index``, numbered as CUDA numbers the visible devices.

    Example:
        >>> gpu(2).torch_name
        'cuda:2'
    """
    return Context("gpu", index)


def parse_contexts(gpus: str | None, *, num_cpus: int = 1) -> list[Context]:
    """Read the value of a ``--gpus`` option: ``"0,2"`` is ``[gpu(0), gpu(2)]``.

    Args:
        gpus: Comma-separated GPU numbers; ``None`` or an empty string means CPU.
        num_cpus: CPU contexts to return when ``gpus`` names none, >= 1.

    Raises:
        ConfigError: An entry is not a number, or appears twice; or ``num_cpus`` is none >= 1.

    Example:
        >>> parse_contexts("0,2"), parse_contexts(None, num_cpus=2)
        ([gpu(0), gpu(2)], [cpu(0), cpu(1)])

    Source:
        The ``--gpus`` flag of MXNet's example/image-classification/common/fit.py.
    """
    if isinstance(num_cpus, bool) or not isinstance(num_cpus, int) or num_cpus < 1:
        raise ConfigError(f"num_cpus must be an integer >= 1, got {num_cpus!r:.60}")
    if gpus is not None and not isinstance(gpus, str):
        raise ConfigError(f"gpus is text such as '0,2', or None; got {gpus!r:.60}")
    if gpus is None or not gpus.strip():
        return [cpu(index) for index in range(num_cpus)]
    contexts = [gpu(_index(entry, gpus)) for entry in gpus.split(",")]
    _refuse_duplicates(contexts)
    return contexts


def _index(entry: str, whole: str) -> int:
    if not entry.strip().isdecimal():
        raise ConfigError(f"--gpus takes comma-separated numbers such as 0,2; got {whole!r}")
    return int(entry)


def _refuse_duplicates(contexts: Iterable[Context]) -> None:
    seen: set[Context] = set()
    for context in contexts:
        if context in seen:
            raise ConfigError(f"{context} is named twice; name each context once")
        seen.add(context)
