"""What a process finds in its environment: the user's variables, and who it is. Pure.

``forwarded`` says what of the launcher's environment goes to other processes; ``told`` adds what is
known only when the job starts: where the scheduler and rank 0 listen. Called by plans, and on each
host by whoever starts the processes there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from bireme.launch.seats import WORLD_VARIABLES
from bireme.settings import NodeSettings
from bireme.settings.dmlc import SPELLINGS
from bireme.settings.variables import variables
from bireme.types.nodes import NodeId, Role

__all__ = (
    "Meeting",
    "forwarded",
    "identity_variables",
    "is_secret",
    "meeting_variables",
    "of_machine",
    "told",
)

_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Which thread pools are sized. MKL and OpenBLAS follow the first one."""

_SECRETS = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL")
"""What a variable that is never shown has in its name."""

_OF_ONE_PROCESS = frozenset({"_", "OLDPWD", "PWD", "SHLVL", "LS_COLORS"})
_OF_ONE_MACHINE = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOSTNAME", "HOST"),
        *("SSH_AGENT_PID", "SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY"),
        *(
            "STY",
            "TERM_SESSION_ID",
            "TMP",
            "TEMP",
            "TMPDIR",
            "TMUX",
            "TMUX_PANE",
            "WAYLAND_DISPLAY",
        ),
        *("WINDOWID", "XAUTHORITY"),
    }
)
"""What means something on one machine only; another has its own, or none."""

_MACHINE_PREFIXES = ("XDG_",)
_FOREIGN_PREFIXES = ("BASH_FUNC_", "OMPI_", "PMI_", "PMIX_", "HYDRA_", "PRTE_", "ORTE_", "I_MPI_")
"""Shell functions, and what a process manager told the launcher of its own place in an MPI job: a
process that reads it would take itself for the launcher."""

_SLURM_PLACE = frozenset(
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_NTASKS"}
)


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """Where the nodes of a job find their scheduler, and workers each other."""

    scheduler_host: str = ""
    """The scheduler's address; empty in a job without servers."""
    scheduler_port: int = 0
    store_host: str = ""
    """An address of rank 0's machine that every worker reaches."""
    store_port: int = 0
    """For the script's own ``torch.distributed``: ``MASTER_PORT``."""
    engine_port: int = 0
    """For the library's collectives, so that both fit into one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """A variable of the meeting, the field that it has, and who is told."""

    name: str
    field: str
    workers_only: bool


_WHERE = (
    _Where(name="BIREME_SCHEDULER_HOST", field="scheduler_host", workers_only=False),
    _Where(name="BIREME_SCHEDULER_PORT", field="scheduler_port", workers_only=False),
    _Where(name="DMLC_PS_ROOT_URI", field="scheduler_host", workers_only=False),
    _Where(name="DMLC_PS_ROOT_PORT", field="scheduler_port", workers_only=False),
    _Where(name="MASTER_ADDR", field="store_host", workers_only=True),
    _Where(name="MASTER_PORT", field="store_port", workers_only=True),
    _Where(name="HOROVOD_GLOO_RENDEZVOUS_ADDR", field="store_host", workers_only=True),
    _Where(name="HOROVOD_GLOO_RENDEZVOUS_PORT", field="engine_port", workers_only=True),
)


def forwarded(inherited: Mapping[str, str], *, elsewhere: bool) -> dict[str, str]:
    """Return the variables that go on from the launcher's environment to processes.

    Everything does but what says who the launcher itself is, and, for another machine, what means
    something on one machine only.

    Args:
        inherited: The launcher's environment.
        elsewhere: Whether the processes run on another machine.

    Example:
        >>> env = {"PATH": "/bin", "RANK": "3", "SSH_AUTH_SOCK": "/tmp/s", "PMI_RANK": "0"}
        >>> forwarded(env, elsewhere=True), forwarded(env, elsewhere=False)
        ({'PATH': '/bin'}, {'PATH': '/bin', 'SSH_AUTH_SOCK': '/tmp/s'})
    """
    left_out = identity_variables() | _SLURM_PLACE
    if elsewhere:
        left_out |= _OF_ONE_PROCESS | _OF_ONE_MACHINE
    prefixes = _FOREIGN_PREFIXES + (_MACHINE_PREFIXES if elsewhere else ())
    return {
        name: text
        for name, text in inherited.items()
        if name not in left_out and not name.startswith(prefixes)
    }


def of_machine(env: Mapping[str, str]) -> dict[str, str]:
    """Return what an agent's environment says of its machine: which GPUs, where temporary files go.

    Args:
        env: The agent's, as its host and its cluster have made it.

    Example:
        >>> of_machine({"CUDA_VISIBLE_DEVICES": "0,1", "TMPDIR": "/scratch/7", "PATH": "/bin"})
        {'CUDA_VISIBLE_DEVICES': '0,1', 'TMPDIR': '/scratch/7'}
    """
    return {name: text for name, text in env.items() if name in _OF_ONE_MACHINE}


def identity_variables() -> frozenset[str]:
    """Return the variables that say who a node is, in every spelling."""
    return _IDENTITY


def is_secret(name: str) -> bool:
    """Return whether a variable's value is for processes only, and never shown.

    Example:
        >>> is_secret("BIREME_SECRET"), is_secret("WANDB_API_KEY"), is_secret("BIREME_SECRET_FILE")
        (True, True, False)
    """
    return _SECRETS.search(name.upper()) is not None and not name.endswith("_FILE")


def told(
    base: Mapping[str, str],
    own: Mapping[str, str],
    node: NodeId,
    meeting: Meeting,
    *,
    threads: int,
    listen_fd: int | None = None,
) -> dict[str, str]:
    """Return the whole environment of one process.

    Args:
        base: What it inherits.
        own: What its plan says.
        node: Which one it is.
        meeting: Where the others are.
        threads: The size of its thread pools where nobody has said another, >= 1.
        listen_fd: The socket that the scheduler inherits.
    """
    env = {**base, **own, **meeting_variables(node, meeting)}
    env.setdefault("PYTHONUNBUFFERED", "1")
    for name in _THREADS:
        env.setdefault(name, str(threads))
    if listen_fd is not None:
        env["BIREME_LISTEN_FD"] = str(listen_fd)
    return env


def meeting_variables(node: NodeId, meeting: Meeting) -> dict[str, str]:
    """Return the variables by which ``node`` finds the others.

    Example:
        >>> from bireme.types import server
        >>> meeting_variables(server(0), Meeting(scheduler_host="leda", scheduler_port=9091))[
        ...     "DMLC_PS_ROOT_URI"]
        'leda'
    """
    return {
        each.name: str(getattr(meeting, each.field))
        for each in _WHERE
        if (node.role is Role.WORKER or not each.workers_only) and getattr(meeting, each.field)
    }


def _identity() -> frozenset[str]:
    ours = {variable.name for variable in variables(NodeSettings).values()}
    return WORLD_VARIABLES | ours | {SPELLINGS[name] for name in ours if name in SPELLINGS}


_IDENTITY = _identity()
