"""Collectives between processes: named operations, and the bank inside one machine."""

__all__: tuple[str, ...] = ()
