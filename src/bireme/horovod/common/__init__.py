"""What does not depend on a framework: module paths of ``horovod.common``."""

__all__: tuple[str, ...] = ()
