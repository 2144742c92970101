"""The exceptions that scripts written for Horovod catch."""

from bireme.errors import ConfigError, JobError, StateError

__all__ = (
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "MisusedOptimizer",
    "NotInitialized",
    "get_version_mismatch_message",
)


class HorovodInternalError(JobError):
    """A collective operation failed, on every rank alike; elastic training starts again from it."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of the job have changed; elastic training starts again without restoring.

    Args:
        skip_sync: Whether only hosts went away, so that nobody needs the state.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync


class NotInitialized(ConfigError):
    """A question about the job before ``hvd.init()``."""

    def __init__(self) -> None:
        super().__init__("Horovod has not been initialized; use hvd.init().")


class MisusedOptimizer(StateError, AssertionError):
    """Methods of a distributed optimizer were called in an order that would mix up gradients."""


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Return what to tell whose framework is not the one that was built against."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}."
    )


class HorovodVersionMismatchError(ImportError):
    """Never raised here, since nothing is built against a framework; scripts import the name."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name: str = name
        self.version = version
        self.installed_version = installed_version
