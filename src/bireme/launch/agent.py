"""The agent: a launcher's hands on another host.

Started there by a remote shell or a cluster as ``bireme agent``. It reads its part of the job from
standard input, carries it out with the same :class:`~bireme.launch.site.LocalSite` that a launcher
uses for its own machine, and writes what happens to standard output. The end of its input means
that the launcher or the connection is gone: it ends every process, and leaves.
"""

import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from bireme.errors import BiremeError, PeerLost
from bireme.launch.contact import Contact
from bireme.launch.environment import of_machine
from bireme.launch.exits import Exit
from bireme.launch.outbox import Outbox
from bireme.launch.signals import SignalInbox
from bireme.launch.site import LocalSite, Site
from bireme.launch.strays import adopt, end_descendants, reap_adopted
from bireme.launch.syncing import Unpacker
from bireme.launch.talk import (
    MARK,
    Asked,
    Begin,
    Bye,
    Ended,
    Failed,
    Files,
    FromAgent,
    Go,
    Lines,
    Pulse,
    Ready,
    Send,
    StartAgain,
    ToAgent,
    Unframer,
    frame,
    packed,
)
from bireme.launch.turn import turn
from bireme.types.nodes import NodeId
from bireme.version import __version__

__all__ = ("Agent", "serve")

_READ_BYTES = 256 << 10
_STEP_S = 5.0
_SILENCE_S = 120.0
_MOST_WAITING_BYTES = 4 << 20
_POLL_S = 0.1
_SWEEP_S = 5.0


class Agent:
    """Carries out one host's part of a job.

    Args:
        in_fd: Where the launcher's messages come from.
        out_fd: Where its own go.
        reached_at: The address at which the launcher has reached this host, if known.
        reached_from: That from which it has.
        own: What the host or its cluster has set, for processes that the job tells nothing else.
        silence_s: After how long without a word the launcher's machine counts as gone.
        adopts: Whether this process is the agent and nothing else: whatever is below it ends.
    """

    def __init__(
        self,
        in_fd: int,
        out_fd: int,
        reached_at: str = "",
        reached_from: str = "",
        own: Mapping[str, str] = MappingProxyType({}),
        silence_s: float = _SILENCE_S,
        *,
        adopts: bool = False,
    ) -> None:
        self._adopts = adopts and adopt()
        self._sweep_s = 0.0
        self._own = packed(own)
        self._in_fd = in_fd
        self._outbox = Outbox(out_fd)
        self._reached_at = reached_at
        self._reached_from = reached_from
        self._contact = Contact(silence_s)
        self._unframer = Unframer(ToAgent, has_mark=False)
        self._selector = selectors.DefaultSelector()
        self._inbox = SignalInbox()
        self._site: LocalSite | None = None
        self._is_over = False
        self._begin: Begin | None = None
        self._unpacker: Unpacker | None = None
        self._stack = contextlib.ExitStack()

    def run(self) -> int:
        """Work until the launcher says goodbye or is gone, and return 0; 1 after a failure."""
        self._outbox.put(MARK)
        os.set_blocking(self._in_fd, False)
        failure = 0
        with self._inbox, self._selector, self._stack:
            self._selector.register(self._in_fd, selectors.EVENT_READ, self._read)
            self._selector.register(self._inbox.fd, selectors.EVENT_READ)
            try:
                self._loop()
            except BiremeError as error:
                self._put(Failed(str(error), __version__))
                failure = 1
            self._end_processes()
            if self._site is not None:
                self._site.close()
            if self._adopts:
                end_descendants(os.getpid())
            self._last_words()
        return failure

    # What the site reports goes to the launcher.

    def ready(self, _site: Site, ready: Ready) -> None:
        """Pass on that processes can start."""
        self._put(msgspec.structs.replace(ready, launcher=self._reached_from))

    def lines(self, node: NodeId, lines: list[str], is_error: bool) -> None:
        """Pass on what a process has printed."""
        self._put(Lines(node, lines, is_error))

    def ended(self, node: NodeId, exit_: Exit) -> None:
        """Pass on that a process has ended."""
        self._put(Ended(node, exit_.status))

    def lost(self, _site: Site, reason: str) -> None:
        """Pass on that nothing is known any more; a site of this very machine never is lost."""
        self._put(Failed(reason))

    def asked(self, signum: int) -> None:
        """Pass on that the job is to end."""
        self._put(Asked(signum))

    def _loop(self) -> None:
        longest_s = _STEP_S if hasattr(os, "pidfd_open") else _POLL_S
        while not (self._is_over or self._outbox.is_broken):
            self._step(min(longest_s, self._contact.limit_s))
            for signum in self._inbox.take():
                self.asked(signum)
            now_s = time.monotonic()
            self._sweep(now_s)
            if self._contact.owes_pulse(now_s):
                self._put(Pulse())
            if self._contact.is_lost(now_s):
                raise PeerLost(f"the launcher has not been heard for {self._contact.limit_s:g} s")

    def _sweep(self, now_s: float) -> None:
        """Take the ends of what processes have let go of, now and then."""
        if self._adopts and now_s > self._sweep_s and self._site and self._site.crew:
            self._sweep_s = now_s + _SWEEP_S
            reap_adopted(self._site.crew.pids)

    def _step(self, limit_s: float) -> None:
        waits = self._outbox.size_bytes > 0
        fd = self._outbox.fd
        if waits and fd not in self._selector.get_map():
            self._selector.register(fd, selectors.EVENT_WRITE, self._outbox.flush)
        elif not waits and fd in self._selector.get_map():
            self._selector.unregister(fd)
        if self._site is not None and self._site.crew is not None:
            # Whoever prints faster than the launcher reads has to wait, as at a terminal.
            self._site.crew.hear(self._outbox.size_bytes < _MOST_WAITING_BYTES)
        turn(self._selector, limit_s)
        if self._site is not None:
            self._site.step(time.monotonic())

    def _read(self) -> None:
        try:
            data = os.read(self._in_fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._is_over = True
            return
        self._contact.heard(time.monotonic())
        for message in self._unframer.feed(data):
            self._take(message)

    def _take(self, message: object) -> None:
        match message:
            case Begin(sync_dir="") as begin:
                self._get_ready(begin)
            case Begin(sync_dir=folder) as begin:
                self._begin, self._unpacker = begin, self._stack.enter_context(Unpacker(folder))
            case Files() if self._begin is not None and self._unpacker is not None:
                self._unpack(message, self._begin, self._unpacker)
            case Bye():
                self._is_over = True
            case Go(meeting) if self._site is not None:
                self._site.go(meeting)
            case Send(nodes, signum) if self._site is not None:
                self._site.signal(nodes, signum)
            case StartAgain(node) if self._site is not None:
                self._site.start_again(node)

    def _unpack(self, files: Files, begin: Begin, unpacker: Unpacker) -> None:
        unpacker.put(files.data)
        if files.is_last:
            unpacker.finish()
            self._get_ready(msgspec.structs.replace(begin, workdir=str(unpacker.folder)))

    def _get_ready(self, begin: Begin) -> None:
        # What the host or its cluster has set, such as the GPUs to use, where the job says nothing.
        begin = msgspec.structs.replace(begin, base={**self._own, **begin.base})
        self._site = LocalSite(begin, self._selector, self, reached_at=self._reached_at)
        self._site.open()

    def _end_processes(self) -> None:
        """Ask what is left to end, and wait as long as it may take; ``close`` kills the rest."""
        crew = self._site.crew if self._site is not None else None
        if crew is None or self._site is None or not crew.nodes:
            return
        if self._in_fd in self._selector.get_map():
            self._selector.unregister(self._in_fd)
        self._site.signal(tuple(crew.nodes), signal.SIGTERM)
        limit_s = time.monotonic() + self._site.grace_s
        while crew.nodes and time.monotonic() < limit_s:
            self._step(_POLL_S)

    def _last_words(self) -> None:
        """Let the launcher read what still waits, if it does within a moment."""
        limit_s = time.monotonic() + 1.0
        while self._outbox.size_bytes and time.monotonic() < limit_s:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._outbox.fd, selectors.EVENT_WRITE)
                waiting.select(0.1)
            self._outbox.flush()

    def _put(self, message: FromAgent) -> None:
        self._outbox.put(frame(message))


def serve(env: Mapping[str, str]) -> int:
    """Be an agent over standard input and output, and return its exit code.

    Args:
        env: The environment; ``SSH_CONNECTION`` says at which address the host was reached.
    """
    in_fd, out_fd = sys.stdin.fileno(), os.dup(sys.stdout.fileno())
    # Whatever prints by mistake must not come between frames.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    connection = env.get("SSH_CONNECTION", "").split()
    reached_from, _, reached_at, _ = connection if len(connection) == 4 else ("",) * 4
    return Agent(in_fd, out_fd, reached_at, reached_from, of_machine(env), adopts=True).run()
