"""Limits on what a peer may announce, checked before memory is taken for it."""

from dataclasses import dataclass

from bireme.errors import ConfigError

__all__ = ("BEFORE_PROOF", "DEFAULT_LIMITS", "Limits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest body and payload that a reader takes.

    Example:
        >>> Limits(max_body_bytes=1024, max_payload_bytes=0).max_body_bytes
        1024
    """

    max_body_bytes: int = 16 << 20
    """Bytes, 0 to 2**32 - 1. The default holds a declaration of about 100,000 keys."""
    max_payload_bytes: int = 1 << 30
    """Bytes, 0 to 2**63 - 1. Slices are about 2 MiB, but a key that its optimizer needs whole
    travels in one piece."""

    def __post_init__(self) -> None:
        for name, bound in (("max_body_bytes", 2**32), ("max_payload_bytes", 2**63)):
            value = getattr(self, name)
            if not 0 <= value < bound:
                raise ConfigError(f"{name} must be >= 0 and < {bound}, got {value}")


DEFAULT_LIMITS = Limits()
"""For peers that hold the job's secret."""

BEFORE_PROOF = Limits(max_body_bytes=64 << 10, max_payload_bytes=0)
"""For peers that have yet to prove that they do."""
