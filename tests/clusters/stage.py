"""A few hosts on this machine: each with its name, its address, its processes and its memory.

All of them live in namespaces below one process. When that one ends, by whatever cause, the kernel
ends every process in them and takes the network away; nothing has to be found by its name.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NETWORK = "10.77.0"
HEAD = "head"
NODES = ("node-a", "node-b")
NICE = ("nice", "-n", "10")
"""Before daemons that ask again and again: jobs and other tests come first."""
_LIMIT_S = 60.0
_INIT = Path(__file__).with_name("init.py")
_NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


class Stage:
    """Hosts that share this machine's files and nothing else.

    Args:
        folder: For configuration, logs and temporary files.
        hosts: Names; the first gets the address ``NETWORK.1``, the next ``NETWORK.2``, ...
    """

    def __init__(self, folder, hosts=(HEAD, *NODES)):
        self.folder = folder
        self.addresses = {name: f"{NETWORK}.{i}" for i, name in enumerate(hosts, 1)}
        self.aliases = dict(zip(NODES, ("leda", "castor"), strict=True))
        """As the pages of the documentation call them."""
        self.env = {}
        self._pids = {}
        self._init = None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "tmp").mkdir(exist_ok=True)
        self._init = subprocess.Popen(
            [
                *("unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"),
                *(sys.executable, "-I", "-S", str(_INIT), *self.addresses),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self._find_hosts()
            self._connect()
            self.replace_file("/etc/hosts", self._hosts_file())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._init.stdin.close()
        try:
            self._init.wait(_LIMIT_S)
        finally:
            self._init.kill()
            self._init.stdout.close()

    def enter(self, host, command, *, folder=ROOT, env=None):
        """Return the command line that runs a command on a host, and its environment."""
        pid = self._pids[host]
        line = ["nsenter", "--target", str(pid), *_NAMESPACES, "env", "-C", str(folder), *command]
        tmp = {"TMPDIR": str(self.folder / "tmp")}
        return line, {**os.environ, **tmp, **self.env, **(env or {})}

    def run(self, command, *, host=HEAD, limit_s=120, check=False, **more):
        """Run a command to its end, and return what ``subprocess.run`` does, as text."""
        line, env = self.enter(host, command, **more)
        ended = subprocess.run(
            line,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if check:
            assert ended.returncode == 0, f"{command}: {ended.stdout}\n{ended.stderr}"
        return ended

    @contextlib.contextmanager
    def start(self, command, *, host=HEAD, **more):
        """Start a command; yield its ``Popen`` with ``inner_pid``, to send signals to."""
        line, env = self.enter(host, command, **more)
        with subprocess.Popen(
            line,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.STDOUT,
        ) as process:
            try:
                process.inner_pid = until(lambda: _child_of(process.pid), "the command starts")
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError, AttributeError):
                    os.kill(process.inner_pid, 9)

    def processes(self):
        """Return the command lines of all living processes of the stage, by their numbers here."""
        space = os.readlink(f"/proc/{self._pids[HEAD]}/ns/pid")
        mine = {self._init_pid, *self._pids.values()}
        found = {}
        for pid in _all_pids():
            with contextlib.suppress(OSError):
                if pid not in mine and os.readlink(f"/proc/{pid}/ns/pid") == space:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    if line and _status(pid)["State"][0] != "Z":
                        found[pid] = line.decode(errors="replace").strip()
        return found

    @contextlib.contextmanager
    def nothing_left(self, limit_s=30):
        """Fail unless, soon after the block, no process or shared memory is there that was not."""
        before, shared = set(self.processes()), self._shared_memory()
        yield

        def rest():
            return {pid: line for pid, line in self.processes().items() if pid not in before}

        until(lambda: not rest(), lambda: f"these are gone: {rest()}", limit_s)
        assert self._shared_memory() <= shared

    def replace_file(self, path, text):
        """Let every host see another text in a file; the machine's own file stays as it is."""
        mine = self.folder / path.strip("/").replace("/", "_")
        mine.write_text(text)
        for host in self._pids:
            self.run(["mount", "--bind", str(mine), path], host=host, check=True)

    def _shared_memory(self):
        return {
            (host, name)
            for host, pid in self._pids.items()
            for name in os.listdir(f"/proc/{pid}/root/dev/shm")
        }

    def _find_hosts(self):
        """Find the hosts' processes, which know their numbers inside of the stage only."""
        for host in self.addresses:
            answer = self._init.stdout.readline().split()
            assert answer[:1] == [host], f"host {host} cannot be made"
            numbers = {_inner(pid): pid for pid in _descendants(self._init.pid)}
            self._pids[host] = numbers[answer[1]]
        self._init_pid = numbers["1"]

    def _connect(self):
        """Join the hosts by a bridge on the first one."""
        head, *others = self.addresses
        lines = [["ip", "link", "add", "br0", "type", "bridge"]]
        for host in others:
            inner = _inner(self._pids[host])
            lines += [
                ["ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", inner],
                ["ip", "link", "set", host, "master", "br0", "up"],
            ]
        lines += [["ip", "link", "set", "br0", "up"]]
        for line in lines:
            self.run(line, host=head, check=True)
        for host, address in self.addresses.items():
            device = "br0" if host == head else "eth0"
            self.run(["ip", "addr", "add", f"{address}/24", "dev", device], host=host, check=True)
            self.run(["ip", "link", "set", device, "up"], host=host, check=True)

    def _hosts_file(self):
        names = "".join(
            f"{address} {name} {self.aliases.get(name, '')}\n"
            for name, address in self.addresses.items()
        )
        return f"127.0.0.1 localhost\n{names}"


def until(found, what, limit_s=_LIMIT_S):
    """Return the first true answer of ``found()``; fail when none comes within the limit."""
    deadline_s = time.monotonic() + limit_s
    while not (answer := found()):
        if time.monotonic() > deadline_s:
            words = what if isinstance(what, str) else what()
            raise AssertionError(f"after {limit_s:g} s it is not yet so that {words}")
        time.sleep(0.02)
    return answer


def _all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _status(pid):
    """Return what the kernel says of a process; nothing once it has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {"State": "X", "PPid": "0", "NSpid": ""}
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def _inner(pid):
    """Return a process's number in the innermost namespace that it is in."""
    return _status(pid)["NSpid"].split("\t")[-1]


def _descendants(root):
    found = {root}
    parents = {pid: int(_status(pid)["PPid"]) for pid in _all_pids()}
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    return found - {root}


def _child_of(pid):
    return next(iter(_descendants(pid)), None)
