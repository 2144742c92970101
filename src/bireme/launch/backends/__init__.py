"""Where jobs can run: one file for each kind of cluster, named in ``launch.registry``."""

__all__ = ()
