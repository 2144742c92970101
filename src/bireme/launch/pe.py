"""Inside of a parallel job of Grid Engine: its hosts, and how to get to them.

Called by the backend for Grid Engine.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bireme.errors import ConfigError
from bireme.launch.base import State
from bireme.launch.hosts import Host
from bireme.launch.muster import with_package
from bireme.launch.nodelist import pe_layout
from bireme.launch.plan import Plan

__all__ = ("find_me", "pe_hosts", "qrsh_step", "qstat_output", "qstat_state", "qsub_number")

_OUTPUT = re.compile(r"^stdout_path_list:.*?(/\S+)$", re.MULTILINE)
_NUMBER = re.compile(r"Your job(?:-array)? (\d+)")


def pe_hosts(env: Mapping[str, str]) -> tuple[Host, ...]:
    """Return the hosts of the parallel job that this process is in; none outside of one.

    Raises:
        ConfigError: The file that ``PE_HOSTFILE`` names cannot be read.
    """
    name = env.get("PE_HOSTFILE", "")
    if not name:
        return ()
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read PE_HOSTFILE: {error}") from error
    return tuple(Host(name=host, slots=slots) for host, slots in pe_layout(text))


def find_me(plan: Plan) -> Plan:
    """Return the plan with this machine marked, by whichever of its names Grid Engine calls it."""
    me = plan.spec.here.partition(".")[0]
    return replace(
        plan,
        hosts=tuple(
            replace(host, is_here=host.is_here or host.host.name.partition(".")[0] == me)
            for host in plan.hosts
        ),
    )


def qrsh_step(host: str, env: Mapping[str, str], python: str) -> tuple[str, ...]:
    """Return the words that start an agent on another host of the job.

    Raises:
        ConfigError: A path has blanks or quotes, which qrsh does not pass on.

    Example:
        >>> " ".join(qrsh_step("leda", {"PYTHONPATH": "/x"}, "/bin/python"))[-27:]
        '/bin/python -m bireme agent'
    """
    path = with_package(env)["PYTHONPATH"]
    words = ("/usr/bin/env", f"PYTHONPATH={path}", python, "-m", "bireme", "agent")
    for word in words:
        if shlex.quote(word) != word:
            raise ConfigError(f"qrsh passes no blanks or quotes on, and {word!r} has some")
    return ("qrsh", "-inherit", host, *words)


def qsub_number(said: str) -> str:
    """Return the number of a job, from what qsub prints; empty when it is not there.

    Example:
        >>> qsub_number('Your job-array 17.1-2:1 ("name") has been submitted')
        '17'
    """
    found = _NUMBER.search(said)
    return found[1] if found else ""


def qstat_state(said: str, job: str) -> State:
    """Return how a job is, from what qstat prints of all: nothing of one that has ended.

    Example:
        >>> qstat_state("      7 0.5 job root r  12/01/2026 14:22:13 all.q@leda", "7")
        <State.RUNNING: 'running'>
    """
    lines = [line.split() for line in said.splitlines()]
    states = [words[4] for words in lines if words[:1] == [job] and len(words) > 4]
    if not states:
        return State.ENDED
    return State.RUNNING if any("r" in each for each in states) else State.QUEUED


def qstat_output(said: str) -> str:
    """Return the file that a job writes to, from what ``qstat -j`` prints; empty if unknown.

    Example:
        >>> qstat_output("stdout_path_list:           NONE:NONE:/home/ann/job-1.log")
        '/home/ann/job-1.log'
    """
    found = _OUTPUT.search(said)
    return found[1] if found else ""
