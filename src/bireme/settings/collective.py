"""What the environment says about collectives: fusion, the cache, stalls, backends. Pure.

Read by whoever starts an engine. Horovod's names are understood; ours come first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bireme.errors import ConfigError
from bireme.settings.variables import check_fields, env, read_fields

__all__ = ("SPELLINGS", "CollectiveSettings")

SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        "BIREME_FUSION_THRESHOLD": "HOROVOD_FUSION_THRESHOLD",
        "BIREME_CACHE_CAPACITY": "HOROVOD_CACHE_CAPACITY",
        "BIREME_STALL_WARNING": "HOROVOD_STALL_CHECK_TIME_SECONDS",
        "BIREME_STALL_SHUTDOWN": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        "BIREME_COLLECTIVE_TIMEOUT": "HOROVOD_GLOO_TIMEOUT_SECONDS",
    }
)
"""Horovod's names of our variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSettings:
    """How an engine negotiates and exchanges. Rank 0's values hold for all ranks.

    Raises:
        ConfigError: A value is of the wrong type or out of bounds.

    Example:
        >>> CollectiveSettings.from_env({"HOROVOD_FUSION_THRESHOLD": "1048576"}).fusion_bytes
        1048576
    """

    fusion_bytes: int = field(default=128 << 20, metadata=env("BIREME_FUSION_THRESHOLD", low=0))
    """Small tensors are exchanged together up to this size; 0: each on its own."""
    cache_capacity: int = field(
        default=1024, metadata=env("BIREME_CACHE_CAPACITY", low=0, high=1 << 20)
    )
    """Operations whose negotiation is remembered, so that repeating them costs a bit."""
    stall_warning_s: float = field(default=60.0, metadata=env("BIREME_STALL_WARNING", low=0))
    """After how long, and how often, a wait for ranks is told; 0: never."""
    stall_shutdown_s: float = field(default=0.0, metadata=env("BIREME_STALL_SHUTDOWN", low=0))
    """After how long a wait for ranks ends the job; 0: never."""
    start_timeout_s: float = field(default=60.0, metadata=env("BIREME_COLLECTIVE_TIMEOUT", above=0))
    """How long ranks wait for each other when they start."""
    exchange_timeout_s: float = field(
        default=1800.0, metadata=env("BIREME_EXCHANGE_TIMEOUT", above=0)
    )
    """How long one exchange of tensors may take. A dead rank is noticed at once."""
    cpu_backend: str = field(default="", metadata=env("BIREME_CPU_BACKEND"))
    """``torch.distributed`` backend for tensors on the CPU; empty: the best there is."""
    cuda_backend: str = field(default="nccl", metadata=env("BIREME_CUDA_BACKEND"))
    """``torch.distributed`` backend for tensors on CUDA devices."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.stall_shutdown_s and not self.stall_warning_s:
            raise ConfigError(
                "stall_shutdown_s needs stall_warning_s > 0: stalls are not looked for otherwise"
            )

    @classmethod
    def from_env(cls, mapping: Mapping[str, str]) -> "CollectiveSettings":
        """Read the settings.

        Raises:
            ConfigError: A text cannot be read; names the variable.
        """
        texts = {ours: mapping[theirs] for ours, theirs in SPELLINGS.items() if theirs in mapping}
        if mapping.get("HOROVOD_STALL_CHECK_DISABLE", "").strip() in ("1", "true", "True"):
            texts["BIREME_STALL_WARNING"] = "0"
            texts["BIREME_STALL_SHUTDOWN"] = "0"
        texts |= {name: mapping[name] for name in mapping if name.startswith("BIREME_")}
        return cls(**read_fields(cls, texts))
