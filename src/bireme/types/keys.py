"""The names of values in a store."""

from typing import TypeAlias

__all__ = ("Key",)

Key: TypeAlias = int | str
"""A key: integers or strings, never both in one store."""
