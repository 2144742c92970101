"""Hosts whose agents one command of a cluster's starts: they call the launcher.

``mpirun`` and ``srun`` start one process on each host, and an array job one for each task. All that
such a process is told is where the launcher listens and a key that is good for this one start;
the job itself comes over the connection that it opens (:mod:`bireme.launch.dialin`). From there on
the host is as any other.
"""

import contextlib
import os
import selectors
import socket
import time
from pathlib import Path
from typing import BinaryIO, Protocol

from bireme.errors import RemoteProtocolError
from bireme.launch.contact import Contact
from bireme.launch.environment import Meeting
from bireme.launch.exits import Exit
from bireme.launch.outbox import Outbox
from bireme.launch.site import Listener
from bireme.launch.talk import (
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
)
from bireme.types.nodes import NodeId
from bireme.version import __version__

__all__ = ("CalledSite", "Starter")

_READ_BYTES = 256 << 10
_SILENCE_S = 60.0


class Starter(Protocol):
    """What starts the agents of several hosts, and takes their calls."""

    @property
    def how_far(self) -> str:
        """What it has said so far, in a few words."""

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left to wait for."""

    def open(self, selector: selectors.BaseSelector) -> None:
        """Start, unless it has been started."""

    def step(self) -> None:
        """Do what is due."""

    def close(self, site: "CalledSite") -> None:
        """Do without a site; the last one ends everything."""


class CalledSite:
    """A host whose agent calls.

    Args:
        begin: Its part of the job.
        starter: What starts the agent.
        selector: Where descriptors go.
        listener: Told what happens.

    Guarantees:
        The host is lost when its agent has not been heard for a minute.
    """

    def __init__(
        self, begin: Begin, starter: Starter, selector: selectors.BaseSelector, listener: Listener
    ) -> None:
        self.name = begin.host
        self._begin = begin
        self._starter = starter
        self._selector = selector
        self._listener = listener
        self._unframer = Unframer(FromAgent, has_mark=True)
        self._link: socket.socket | None = None
        self._outbox: Outbox | None = None
        self._archive: Path | None = None
        self._files: BinaryIO | None = None
        self._is_lost = False
        self._contact = Contact(_SILENCE_S)

    @property
    def has_called(self) -> bool:
        """Whether the agent has."""
        return self._outbox is not None

    @property
    def how_far(self) -> str:
        """What it is waiting for."""
        return "its agent is not ready" if self.has_called else self._starter.how_far

    @property
    def is_gone(self) -> bool:
        """Whether the agent has left, or never came, and its starter has."""
        return self._link is None and self._starter.is_gone

    def bring(self, archive: Path) -> None:
        """Have files unpacked in the job's ``sync_dir`` before anything else."""
        self._archive = archive

    def open(self) -> None:
        """Have the agents started, unless they have been."""
        self._starter.open(self._selector)

    def take(self, link: socket.socket) -> None:
        """Take the agent's call, and tell it its part of the job; only the first one counts."""
        if self.has_called or self._is_lost:
            link.close()
            return
        self._link = link
        self._outbox = Outbox(os.dup(link.fileno()))
        self._selector.register(link, selectors.EVENT_READ, self._read)
        self._contact.heard(time.monotonic())
        self._put(self._begin)
        if self._begin.sync_dir and self._archive is not None:
            self._files = self._archive.open("rb")
            self._put_files()

    def go(self, meeting: Meeting) -> None:
        """Have every process of the host started."""
        self._put(Go(meeting))

    def signal(self, nodes: tuple[NodeId, ...], signum: int) -> None:
        """Have a signal sent to processes, and to what they have started."""
        self._put(Send(nodes, signum))

    def start_again(self, node: NodeId) -> None:
        """Have the process of a node that has ended started once more."""
        if self._is_lost:
            self._listener.ended(node, Exit(255, f"cannot be started again: {self.name} is lost"))
        else:
            self._put(StartAgain(node))

    def step(self, now_s: float) -> None:
        """Notice an agent that is silent; time in which this process did not run is not counted."""
        self._starter.step()
        if self._link is None:
            return
        if self._contact.owes_pulse(now_s):
            self._put(Pulse())
        if self._contact.is_lost(now_s):
            self.lose(f"nothing has been heard from it for {_SILENCE_S:g} s")

    def leave(self) -> None:
        """Have the agent leave, which ends what is left on its host."""
        self._put(Bye())

    def close(self) -> None:
        """Give everything back."""
        self._is_lost = True
        if self._files is not None:
            self._files.close()
        self._hang_up()
        self._starter.close(self)

    def lose(self, reason: str) -> None:
        """Give the host up."""
        self._hang_up()
        if not self._is_lost:
            self._is_lost = True
            self._listener.lost(self, reason)

    def _put(self, message: ToAgent) -> None:
        outbox = self._outbox
        if outbox is None or self._link is None:
            return
        outbox.put(frame(message))
        if outbox.size_bytes and outbox.fd not in self._selector.get_map():
            self._selector.register(outbox.fd, selectors.EVENT_WRITE, self._write)

    def _put_files(self) -> None:
        """Read on where the last piece has left; the archive is never in memory as a whole."""
        outbox = self._outbox
        while self._files is not None and outbox is not None and outbox.size_bytes < _READ_BYTES:
            data = self._files.read(_READ_BYTES)
            if not data:
                self._files.close()
                self._files = None
            self._put(Files(data, is_last=not data))

    def _write(self) -> None:
        assert self._outbox is not None
        self._outbox.flush()
        self._put_files()
        if not self._outbox.size_bytes:
            self._selector.unregister(self._outbox.fd)

    def _read(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lose("the connection to its agent has ended")
            return
        self._contact.heard(time.monotonic())
        try:
            messages = self._unframer.feed(data)
        except RemoteProtocolError as error:
            self.lose(f"its agent cannot be understood: {error}")
            return
        for message in messages:
            self._hear(message)

    def _hear(self, message: ToAgent | FromAgent) -> None:
        match message:
            case Lines(node, lines, is_error):
                self._listener.lines(node, lines, is_error)
            case Ended(node, status):
                self._listener.ended(node, Exit(status))
            case Asked(signum):
                self._listener.asked(signum)
            case Failed(text):
                self.lose(text)
            case Ready(version=version) if version != __version__:
                self.lose(
                    f"it has bireme {version}, and {__version__} is here; install the same on both"
                )
            case Ready():
                self._listener.ready(self, message)

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is None or self._outbox is None:
            return
        for fd in (link.fileno(), self._outbox.fd):
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
        with contextlib.suppress(OSError):
            os.close(self._outbox.fd)
        link.close()
