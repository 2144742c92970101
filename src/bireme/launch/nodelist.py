"""Which hosts a cluster's scheduler has given to a job, from what it tells the job. Pure.

Called by the launchers for Slurm and Grid Engine, inside of a job of theirs.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from bireme.errors import ConfigError
from bireme.launch.hosts import Host

__all__ = (
    "Layout",
    "expand_nodelist",
    "pe_layout",
    "slurm_hosts",
    "slurm_layout",
    "tasks_per_node",
)

Layout = tuple[tuple[str, int], ...]
"""Each host and how many processes it takes, in the scheduler's order."""

_MOST: Final = 1 << 16
_PART = re.compile(r"([^\[\],\s]*)(?:\[([^\[\]]*)\])?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?", re.ASCII)


def expand_nodelist(text: str) -> tuple[str, ...]:
    """Return the host names that Slurm's short form stands for, as ``scontrol show hostnames``.

    Args:
        text: Such as ``SLURM_JOB_NODELIST``.

    Raises:
        ConfigError: It is no list of hosts, or one of more than 65,536.

    Example:
        >>> expand_nodelist("node[1-3,7],gpu-[08-10]")
        ('node1', 'node2', 'node3', 'node7', 'gpu-08', 'gpu-09', 'gpu-10')
        >>> expand_nodelist("rack[1-2]n[0-1]")
        ('rack1n0', 'rack1n1', 'rack2n0', 'rack2n1')
    """
    hosts: list[str] = []
    for item in _split(text):
        hosts += itertools.islice(_expand(item, text), _MOST + 1 - len(hosts))
        if len(hosts) > _MOST:
            raise ConfigError(f"the list of hosts {text!r} stands for more than {_MOST} hosts")
    return tuple(hosts)


def tasks_per_node(text: str) -> tuple[int, ...]:
    """Return the counts that Slurm's short form stands for.

    Args:
        text: Such as ``SLURM_TASKS_PER_NODE``.

    Raises:
        ConfigError: It is no list of counts.

    Example:
        >>> tasks_per_node("2(x3),1")
        (2, 2, 2, 1)
    """
    counts: list[int] = []
    for item in text.split(","):
        found = _COUNT.fullmatch(item.strip())
        if found is None or int(found[2] or 1) > _MOST:
            raise ConfigError(f"expected counts such as 2(x3),1, got {text!r}")
        counts += [int(found[1])] * int(found[2] or 1)
    return tuple(counts)


def slurm_layout(env: Mapping[str, str]) -> Layout:
    """Return the hosts of the allocation that Slurm describes, each with its number of tasks.

    Args:
        env: The environment of a process inside of an allocation.

    Raises:
        ConfigError: It is not inside of one, or the variables contradict each other.

    Example:
        >>> slurm_layout({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4,1"})
        (('n1', 4), ('n2', 1))
    """
    listed = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST")
    if not listed:
        raise ConfigError("SLURM_JOB_NODELIST is not set: this is no allocation of Slurm's")
    hosts = expand_nodelist(listed)
    # An allocation without --ntasks says nothing of tasks, or one for each node.
    counted = env.get("SLURM_TASKS_PER_NODE")
    counts = tasks_per_node(counted) if counted else (1,) * len(hosts)
    if len(counts) != len(hosts):
        raise ConfigError(
            f"SLURM_JOB_NODELIST={listed} names {len(hosts)} hosts and "
            f"SLURM_TASKS_PER_NODE={counted} counts for {len(counts)}"
        )
    return tuple(zip(hosts, counts, strict=True))


def slurm_hosts(env: Mapping[str, str]) -> tuple[Host, ...]:
    """Return the hosts of the allocation that Slurm describes; none outside of one.

    They have slots where the user has said how many tasks there are to be.

    Raises:
        ConfigError: The variables contradict each other.

    Example:
        >>> env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NTASKS": "3"}
        >>> [(h.name, h.slots) for h in slurm_hosts({**env, "SLURM_TASKS_PER_NODE": "2,1"})]
        [('n1', 2), ('n2', 1)]
    """
    if not env.get("SLURM_JOB_ID"):
        return ()
    counted = bool(env.get("SLURM_NTASKS") or env.get("SLURM_NTASKS_PER_NODE"))
    return tuple(
        Host(name=name, slots=slots if counted else None) for name, slots in slurm_layout(env)
    )


def pe_layout(text: str) -> Layout:
    r"""Return the hosts that Grid Engine has given to a parallel job, each with its slots.

    A host that is named for several queues is one host with all its slots.

    Args:
        text: Content of the file that ``PE_HOSTFILE`` names: host, slots, queue, processors.

    Raises:
        ConfigError: A line is something else, or there is none.

    Example:
        >>> pe_layout("a 2 all.q@a UNDEFINED\nb 1 all.q@b UNDEFINED\na 1 long.q@a UNDEFINED\n")
        (('a', 3), ('b', 1))
    """
    slots: dict[str, int] = {}
    for line in text.splitlines():
        host, *rest = line.split() or [""]
        if not host:
            continue
        if not rest or not rest[0].isdecimal():
            raise ConfigError(f"expected a host and its slots in PE_HOSTFILE, got {line!r}")
        slots[host] = slots.get(host, 0) + int(rest[0])
    if not slots:
        raise ConfigError("PE_HOSTFILE names no host")
    return tuple(slots.items())


def _split(text: str) -> Iterator[str]:
    """Cut at the commas that are not between brackets."""
    depth, start = 0, 0
    for position, letter in enumerate(text + ","):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth:
        raise ConfigError(f"a bracket is left open in the list of hosts {text!r}")


def _expand(item: str, text: str) -> Iterator[str]:
    parts = [(found[1], found[2]) for found in _PART.finditer(item) if found[0]]
    if not parts or "".join(p + ("" if r is None else f"[{r}]") for p, r in parts) != item:
        raise ConfigError(f"expected hosts such as node[1-3,7], got {text!r}")
    choices = [
        [prefix] if ranges is None else _names(prefix, ranges, text) for prefix, ranges in parts
    ]
    return ("".join(names) for names in itertools.product(*choices))


def _names(prefix: str, ranges: str, text: str) -> list[str]:
    names: list[str] = []
    for each in ranges.split(","):
        found = _RANGE.fullmatch(each)
        if found is None:
            raise ConfigError(f"expected numbers such as [1-3,7] between brackets, got {text!r}")
        first, last = found[1], found[2] or found[1]
        if not 0 <= int(last) - int(first) < _MOST:
            raise ConfigError(f"[{each}] in {text!r} is no range of hosts")
        # Leading zeros are part of the name: 08, 09, 10.
        names += [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return names
