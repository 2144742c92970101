"""Module paths of ``horovod.runner.common`` that scripts import."""

__all__: tuple[str, ...] = ()
