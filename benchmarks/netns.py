"""A cluster of network namespaces: hosts with links of a known speed, on this machine.

Each host is a namespace with one interface, ``eth0``. A switch, a namespace too, joins them; both
ends of every link pass ``tc tbf``, so that a host sends and receives at its rate and no faster.
What runs on a host is a real process with real sockets. Needs root, ``ip`` and ``tc``.

Everything is gone after the ``with`` block, whatever ends it: an exception, Ctrl-C or SIGTERM.
What a process left behind that was killed outright is removed when the next cluster is made.

Used by ``bench_network.py`` and others; ``python benchmarks/netns.py`` removes leftovers.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

BURST_BYTES = 64 << 10
"""What a link may send at once after it was idle; a queue behind it holds 200 ms."""

_PREFIX = "brm"
_NAMES = re.compile(rf"{_PREFIX}(\d+)x\d+n(?:\d+|s)$")
_numbers = itertools.count()


class ClusterError(Exception):
    """A command that builds the cluster failed."""


class Count(NamedTuple):
    """Bytes that passed a host's link since it was made, headers included."""

    sent_bytes: int
    received_bytes: int

    def since(self, earlier: "Count") -> "Count":
        """Return what passed after ``earlier``."""
        return Count(
            self.sent_bytes - earlier.sent_bytes, self.received_bytes - earlier.received_bytes
        )


class Host(NamedTuple):
    """One host of a cluster."""

    index: int
    namespace: str
    address: str
    rate_mbit: float

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs ``arguments`` on this host."""
        return ["ip", "netns", "exec", self.namespace, *arguments]

    def start(
        self, arguments: Sequence[str], env: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[str]:
        """Start a process on this host; ``env`` comes on top of this process's environment."""
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            self.command(arguments), env=os.environ | dict(env or {}), text=True, **options
        )


class Cluster:
    """Hosts that are up.

    Attributes:
        hosts: In order; their addresses are 10.77.7.1 and up.
    """

    def __init__(self, hosts: Sequence[Host], switch: str) -> None:
        self.hosts = list(hosts)
        self._switch = switch

    def counts(self) -> list[Count]:
        """Return what has passed each host's link so far."""
        shown = _run("ip", "-n", self._switch, "-s", "-j", "link", "show")
        links = {each["ifname"]: each for each in json.loads(shown)}
        found = []
        for host in self.hosts:
            # What the switch receives on its end, the host has sent.
            stats = links[f"v{host.index}"]["stats64"]
            found.append(Count(stats["rx"]["bytes"], stats["tx"]["bytes"]))
        return found

    def set_rate(self, host: Host, rate_mbit: float) -> None:
        """Change the rate of a host's link, both ways."""
        for namespace, device in ((host.namespace, "eth0"), (self._switch, f"v{host.index}")):
            _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, *_shape(rate_mbit))


@contextlib.contextmanager
def cluster(rates_mbit: Sequence[float], mtu: int = 1500) -> Iterator[Cluster]:
    """Make a host for each rate; remove them all at the end.

    Args:
        rates_mbit: Speed of each host's link in Mbit/s, both ways; at most 250 hosts.
        mtu: Largest packet, in bytes. This machine's processors do a switch's work for each packet,
            which above some 100 Mbit/s and 4 hosts leaves too little of them for the hosts.

    Raises:
        ClusterError: It cannot be built, for example without root.
    """
    remove_leftovers()
    stem = f"{_PREFIX}{os.getpid()}x{next(_numbers)}n"
    switch = f"{stem}s"
    hosts = [
        Host(index, f"{stem}{index}", f"10.77.7.{index + 1}", rate)
        for index, rate in enumerate(rates_mbit)
    ]
    with _terminating():
        try:
            _run("ip", "netns", "add", switch)
            _run("ip", "-n", switch, "link", "add", "name", "sw0", "type", "bridge")
            _run("ip", "-n", switch, "link", "set", "sw0", "up")
            for host in hosts:
                _plug(host, switch, mtu)
            yield Cluster(hosts, switch)
        finally:
            for name in (*(host.namespace for host in hosts), switch):
                _remove(name)


def remove_leftovers() -> int:
    """Remove the namespaces of processes that are gone; return how many."""
    gone = 0
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split(" ")[0]
        match = _NAMES.match(name)
        if match and not Path(f"/proc/{match[1]}").exists():
            _remove(name)
            gone += 1
    return gone


def missing() -> str:
    """Return why no cluster can be made here; empty when one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with cluster([100]):
            return ""
    except ClusterError as error:
        return str(error)


def _plug(host: Host, switch: str, mtu: int) -> None:
    name, port = host.namespace, f"v{host.index}"
    _run("ip", "netns", "add", name)
    _run(
        "ip",
        "-n",
        switch,
        "link",
        "add",
        "name",
        port,
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        name,
    )
    for namespace, device in ((name, "eth0"), (switch, port)):
        _run("ip", "-n", namespace, "link", "set", device, "mtu", str(mtu))
    _run("ip", "-n", switch, "link", "set", port, "master", "sw0", "up")
    _run("ip", "-n", name, "addr", "add", f"{host.address}/24", "dev", "eth0")
    _run("ip", "-n", name, "link", "set", "eth0", "up")
    _run("ip", "-n", name, "link", "set", "lo", "up")
    for namespace, device in ((name, "eth0"), (switch, port)):
        _run("tc", "-n", namespace, "qdisc", "add", "dev", device, *_shape(host.rate_mbit))


def _shape(rate_mbit: float) -> tuple[str, ...]:
    rate = f"{round(rate_mbit * 1e3)}kbit"
    return ("root", "tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", "200ms")


def _remove(namespace: str) -> None:
    """End what still runs there, and remove the namespace with its links."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        left = _pids(namespace)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        limit_s = time.monotonic() + 3
        while left and _pids(namespace) and time.monotonic() < limit_s:
            time.sleep(0.02)
    subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL, check=False)


def _pids(namespace: str) -> list[int]:
    found = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ClusterError(f"cannot run {command[0]}: {error}") from error
    if done.returncode:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """Make SIGTERM an exit, so that what was made is removed."""

    def leave(signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    print(f"removed {remove_leftovers()} namespaces")
