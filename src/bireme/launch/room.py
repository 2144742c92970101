"""Room for the descriptors of many processes and hosts."""

import resource

from bireme.errors import ConfigError

__all__ = ("make_room",)


def make_room(num_fds: int) -> None:
    """Let this process have at least so many open descriptors.

    Raises:
        ConfigError: The system does not let it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= num_fds:
        return
    if hard != resource.RLIM_INFINITY and hard < num_fds:
        raise ConfigError(
            f"so many processes and hosts need {num_fds} open files, and this shell allows {hard}; "
            f"raise the hard limit: ulimit -Hn {num_fds}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_fds, hard))
