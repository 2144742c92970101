"""Module paths of ``horovod.runner.util`` that scripts import."""

__all__: tuple[str, ...] = ()
