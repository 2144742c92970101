"""Module paths of ``horovod.runner.elastic`` that scripts and states import."""

__all__: tuple[str, ...] = ()
