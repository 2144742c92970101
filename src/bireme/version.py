"""The package's version, read by the build and by ``bireme --version``."""

__all__ = ("__version__",)

__version__ = "0.1.0"
