"""One command that starts the agents of many hosts, and the desk at which they report.

Called by backends whose cluster starts processes by itself. One of the hosts is a
:class:`~bireme.launch.called.CalledSite`.
"""

import contextlib
import os
import secrets
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import bireme
from bireme.errors import ConfigError
from bireme.launch.agent import Agent
from bireme.launch.called import CalledSite
from bireme.launch.dialin import Reception, dial
from bireme.launch.environment import of_machine
from bireme.launch.lines import LineBuffer
from bireme.launch.plan import HostPlan
from bireme.launch.probe import interfaces
from bireme.launch.remote import Explain
from bireme.launch.site import Listener
from bireme.launch.talk import Begin
from bireme.transport.base import Identity

__all__ = ("CALL_VARIABLES", "Muster", "agent_command", "call", "split_words", "with_package")

CALL_VARIABLES = ("BIREME_CALL_AT", "BIREME_CALL_KEY", "BIREME_CALL_FOR", "PYTHONPATH")
"""What agents read in their environment; a command that passes nothing on is told these names."""

_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_KEY_BYTES = 32
_READ_BYTES = 64 << 10
_TERM_S = 2.0


class Muster:
    """Starts agents by one command, and takes their calls.

    Args:
        command: Starts one agent on each host (``agent_command``), in the order of hosts.
        env: The command's environment.
        job: The job's name.
        explain: Turns the command's exit code and last lines into a reason and what to do.
        prepare: Given what agents have to be told, before the command starts; for commands that do
            not pass their environment on.

    Guarantees:
        The key with which agents prove themselves is in the command's environment only.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        job: str,
        explain: Explain,
        prepare: Callable[[Mapping[str, str]], object] = dict,
    ) -> None:
        self._prepare = prepare
        self._command = command
        self._env = env
        self._job = job
        self._explain = explain
        self._key = secrets.token_hex(_KEY_BYTES)
        self._sites: list[CalledSite] = []
        self._names: dict[str, int] = {}
        self._open: set[CalledSite] = set()
        self._reception: Reception | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._said = LineBuffer()
        self._lines: deque[str] = deque(maxlen=20)

    def site(
        self,
        host: HostPlan,
        begin: Begin,
        selector: selectors.BaseSelector,
        listener: Listener,
    ) -> CalledSite:
        """Return the next host; its agent is the next one."""
        site = CalledSite(begin, self, selector, listener)
        self._names[host.host.name] = len(self._sites)
        self._sites.append(site)
        self._open.add(site)
        return site

    @property
    def how_far(self) -> str:
        """What the command has said last."""
        last = f"; last said: {self._lines[-1]}" if self._lines else ""
        return f"its agent, started by {self._command[0]}, has not called{last}"

    @property
    def is_gone(self) -> bool:
        """Whether the command has ended."""
        return self._process is None or self._process.poll() is not None

    def open(self, selector: selectors.BaseSelector) -> None:
        """Start the command, once."""
        if self._reception is not None:
            return
        self._selector = selector
        self._reception = Reception(self._key.encode(), self._job, selector, self._called)
        told = self._told(self._reception.port)
        self._prepare({name: told[name] for name in CALL_VARIABLES})
        try:
            self._process = subprocess.Popen(
                self._command,
                env=told,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._lose(f"cannot run {self._command[0]!r}: {error}")
            return
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        selector.register(self._process.stdout, selectors.EVENT_READ, self._read)

    def step(self) -> None:
        """Send strangers away."""
        if self._reception is not None:
            self._reception.step()

    def close(self, site: CalledSite) -> None:
        """Do without a site; with the last one the command ends."""
        self._open.discard(site)
        if self._open:
            return
        if self._reception is not None:
            self._reception.close()
            self._reception = None
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdout is not None
        if process.stdout in self._selector.get_map():
            self._selector.unregister(process.stdout)
        _end(process)
        process.stdout.close()

    def _told(self, port: int) -> dict[str, str]:
        own = [address for _, address in interfaces()]
        addresses = sorted(own or ["127.0.0.1"], key=lambda address: ":" in address)
        return {
            **with_package(self._env),
            "BIREME_CALL_AT": " ".join(f"{address} {port}" for address in addresses),
            "BIREME_CALL_KEY": self._key,
            "BIREME_CALL_FOR": self._job,
        }

    def _called(self, identity: Identity, link: socket.socket) -> None:
        index = self._names.get(str(identity.get("host")), identity.get("agent"))
        if isinstance(index, int) and 0 <= index < len(self._sites):
            self._sites[index].take(link)
        else:
            link.close()

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        try:
            data = os.read(process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        self._lines.extend(self._said.feed(data) if data else self._said.finish())
        if data:
            return
        self._selector.unregister(process.stdout)
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_TERM_S)
        self._lose(self._explain(code, list(self._lines)))

    def _lose(self, reason: str) -> None:
        """Give up those who have not called; the connections to others live on their own."""
        for site in self._sites:
            if not site.has_called:
                site.lose(reason)


def agent_command(python: str = "") -> tuple[str, ...]:
    """Return what starts an agent that calls.

    Args:
        python: The interpreter on the hosts; empty for the path of this one.
    """
    return (python or sys.executable, "-m", "bireme", "agent", "--call")


def split_words(text: str, option: str) -> tuple[str, ...]:
    """Return the words of an option that passes words on to another program.

    Raises:
        ConfigError: A quote is left open.

    Example:
        >>> split_words("--account=bio --comment 'two words'", "--slurm-args")
        ('--account=bio', '--comment', 'two words')
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"cannot read {option} {text!r}: {error}") from error


def with_package(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python finds this package, also where it is not installed."""
    folder = str(Path(bireme.__file__).parent.parent)
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    path = ["" if folder in installed else folder, *env.get("PYTHONPATH", "").split(os.pathsep)]
    return {**env, "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, path)))}


def call(env: Mapping[str, str]) -> int:
    """Be an agent that calls its launcher, and return its exit code.

    Args:
        env: Holds ``CALL_VARIABLES``, and this process's number in one of many spellings.

    Raises:
        ConfigError: It does not.
        TransportError: The launcher cannot be reached.
    """
    missing = [name for name in CALL_VARIABLES[:3] if name not in env]
    if missing:
        raise ConfigError(f"bireme agent --call is for launchers; {', '.join(missing)} is not set")
    words = env["BIREME_CALL_AT"].split()
    addresses = [(host, int(port)) for host, port in zip(words[::2], words[1::2], strict=True)]
    with dial(
        addresses, env["BIREME_CALL_KEY"].encode(), env["BIREME_CALL_FOR"], _identity(env)
    ) as link:
        reached_at = str(link.getsockname()[0]).removeprefix("::ffff:")
        out_fd = os.dup(link.fileno())
        try:
            own = of_machine(env)
            return Agent(link.fileno(), out_fd, reached_at, own=own, adopts=True).run()
        finally:
            os.close(out_fd)


def _identity(env: Mapping[str, str]) -> Identity:
    """Return who this agent is: its host's name for the cluster, and its number."""
    identity: dict[str, str | int] = {}
    if env.get("SLURMD_NODENAME"):
        identity["host"] = env["SLURMD_NODENAME"]
    task = env.get("SGE_TASK_ID", "")
    if task.isdecimal():
        identity["agent"] = int(task) - 1
    else:
        ranks = (env[name] for name in _RANKS if env.get(name, "").isdecimal())
        identity["agent"] = int(next(ranks, "0"))
    return identity


def _end(process: subprocess.Popen[bytes]) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_S)
            return
