"""Hosts that ssh reaches: one agent on each, which starts and watches the processes there."""

import argparse
import selectors
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

from bireme.errors import ConfigError
from bireme.launch.base import State, Submitted
from bireme.launch.console import Printer
from bireme.launch.foreground import cancel_here, logs_here, status_here
from bireme.launch.hosts import Host
from bireme.launch.job import JobSpec
from bireme.launch.listing import Listing
from bireme.launch.plan import HostPlan, Plan, plan_on
from bireme.launch.remote import RemoteSite
from bireme.launch.shells import agent_line, explain, preface
from bireme.launch.site import Listener
from bireme.launch.supervise import Limits
from bireme.launch.talk import Begin
from bireme.launch.watch import run_plan

__all__ = ("SshBackend",)

_CONNECT_S = 10


class SshBackend:
    """Runs a job on hosts that ssh reaches without a password.

    Args:
        env: The launcher's environment, which ssh gets too.
        program: What to run as ssh. Another one than ssh is given the host and the command only.
        args: Words for it before ours, which they override.
        port: The ssh server's port, where a host names none.
        identity_file: The key to log in with.
        python: The interpreter on the hosts; empty: the path of this one.
        limits: How long to wait for what when the job ends.

    Guarantees:
        No secret and nothing of the user's environment is in a command line. No ssh asks anything.
    """

    name: ClassVar[str] = "ssh"
    summary: ClassVar[str] = "hosts that ssh reaches (-H, --hostfile)"

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        program: str = "ssh",
        args: tuple[str, ...] = (),
        port: int | None = None,
        identity_file: str = "",
        python: str = "",
        limits: Limits | None = None,
    ) -> None:
        self._env = env
        self._program = program
        self._args = args
        self._port = port
        self._identity_file = identity_file
        self._python = python
        self._limits = limits

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Add what ssh is told."""
        parser.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="ssh's port")
        parser.add_argument("-i", "--ssh-identity-file", default="", metavar="FILE", help="the key")
        parser.add_argument(
            "--ssh-args", default="", metavar="ARGS", help="more for ssh, such as '-F config'"
        )
        parser.add_argument(
            "--ssh-python",
            default="",
            metavar="PATH",
            help="Python on the hosts (default: as here)",
        )
        parser.add_argument(
            "--ssh-program", default="ssh", metavar="PROGRAM", help="another remote shell than ssh"
        )

    @classmethod
    def from_options(cls, options: argparse.Namespace, env: Mapping[str, str]) -> "SshBackend":
        """Return a backend as the command line describes it."""
        try:
            args = tuple(shlex.split(options.ssh_args))
        except ValueError as error:
            raise ConfigError(f"cannot read --ssh-args {options.ssh_args!r}: {error}") from error
        return cls(
            env,
            program=options.ssh_program,
            args=args,
            port=options.ssh_port,
            identity_file=options.ssh_identity_file,
            python=options.ssh_python,
        )

    def plan(self, spec: JobSpec) -> Plan:
        """Return what runs where.

        Raises:
            ConfigError: The job names no hosts, or they have too few slots.
        """
        if not spec.hosts:
            raise ConfigError("ssh to which hosts? -H leda:2,castor:2 or --hostfile FILE")
        return plan_on(spec, spec.hosts)

    def render(self, plan: Plan) -> str:
        """Return the ssh commands, each under comments on what its agent is told to start."""
        listing = Listing(plan)
        lines = list(listing.job())
        for host in plan.hosts:
            lines += [f"# {host.host}:", *listing.host(host)]
            if not host.is_here:
                lines.append(shlex.join(self.command(host.host, plan.spec)))
        return "\n".join(lines) + "\n"

    def submit(self, plan: Plan, printer: Printer) -> Submitted:
        """Run the job to its end."""
        exit_code = run_plan(plan, printer, partial(self._site, plan.spec), self._limits)
        return Submitted(job=plan.spec.name, exit_code=exit_code)

    def status(self, job: str) -> State:
        """Return how a job is whose launcher runs here."""
        return status_here(job, self._env)

    def cancel(self, job: str) -> None:
        """End a job whose launcher runs here."""
        cancel_here(job, self._env)

    def logs(self, job: str) -> Iterator[str]:
        """Yield the lines that a running job has kept here."""
        return logs_here(job, self._env)

    def command(self, host: Host, spec: JobSpec) -> tuple[str, ...]:
        """Return the words that start the agent on a host."""
        return self._remote(host, self._line(), spec.launch_timeout_s)

    def remote(self, host: Host, command: Sequence[str], limit_s: float) -> tuple[str, ...]:
        """Return the words that run another command on a host.

        Args:
            host: Where.
            command: Its words, without newlines and exclamation marks, which some shells take for
                their own.
            limit_s: How long connecting may take.
        """
        return self._remote(host, shlex.join(command), limit_s)

    def _remote(self, host: Host, line: str, limit_s: float) -> tuple[str, ...]:
        return (self._program, *self._args, *self._options(host, limit_s), host.name, line)

    def _options(self, host: Host, most_s: float) -> Iterator[str]:
        if self._program.rpartition("/")[2] != "ssh":
            return
        limit_s = max(1, min(_CONNECT_S, int(most_s)))
        yield "-T"
        for option in (
            "BatchMode=yes",
            "StrictHostKeyChecking=accept-new",
            "LogLevel=ERROR",
            f"ConnectTimeout={limit_s}",
        ):
            yield from ("-o", option)
        port = host.port or self._port
        if port is not None:
            yield from ("-p", str(port))
        if self._identity_file:
            yield from ("-i", self._identity_file)
        if host.user:
            yield from ("-l", host.user)

    def _line(self) -> str:
        return agent_line(self._python)

    def _site(
        self,
        spec: JobSpec,
        host: HostPlan,
        begin: Begin,
        selector: selectors.BaseSelector,
        listener: Listener,
    ) -> RemoteSite:
        return RemoteSite(
            begin,
            self.command(host.host, spec),
            env=spec.inherited,
            preface=preface(),
            selector=selector,
            listener=listener,
            explain=partial(explain, str(host.host), self._python or sys.executable),
        )
