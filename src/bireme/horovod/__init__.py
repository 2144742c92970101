"""The names that Horovod's users know, each calling :mod:`bireme.collective`."""

__all__: tuple[str, ...] = ()
