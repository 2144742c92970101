"""The wire format: frame header, messages, codec. Pure: bytes in, values out."""

__all__ = ()
