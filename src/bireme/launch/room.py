"""Room for the descriptors of many processes and hosts."""

import resource

from bireme.errors import ConfigError
from bireme.launch.plan import Plan

__all__ = ("fds_for", "make_room")

_OF_A_LAUNCHER = 64
_OF_A_PROCESS = 3
_OF_A_HOST = 4


def fds_for(plan: Plan) -> int:
    """Return how many descriptors a launcher has open at most while it runs a plan.

    Three for each process here and for each remote shell, one or two for each log.
    """
    here = sum(len(host.processes) for host in plan.hosts if host.is_here)
    logs = 0 if plan.spec.output_dir is None else 2 * len(plan.spec.nodes())
    return _OF_A_LAUNCHER + _OF_A_PROCESS * here + _OF_A_HOST * len(plan.hosts) + logs


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
