"""Module paths of ``horovod.runner.common.util`` that scripts import."""

__all__: tuple[str, ...] = ()
