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
from pathlib import Path
from typing import Protocol

from bireme.launch.conversation import READ_BYTES, Conversation
from bireme.launch.environment import Meeting
from bireme.launch.exits import Exit
from bireme.launch.site import Listener
from bireme.launch.talk import Begin, Bye, Go, Send, StartAgain
from bireme.types.nodes import NodeId

__all__ = ("CalledSite", "Starter")


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
        self._talk = Conversation(self, selector, listener, self.lose)
        self._link: socket.socket | None = None
        self._has_called = False
        self._is_lost = False

    @property
    def has_called(self) -> bool:
        """Whether the agent has."""
        return self._has_called

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
        self._talk.bring(archive)

    def open(self) -> None:
        """Have the agents started, unless they have been."""
        self._starter.open(self._selector)

    def take(self, link: socket.socket) -> None:
        """Take the agent's call, and tell it its part of the job; only the first one counts."""
        if self.has_called or self._is_lost:
            link.close()
            return
        self._link = link
        self._has_called = True
        self._selector.register(link, selectors.EVENT_READ, self._read)
        self._talk.begin(os.dup(link.fileno()), self._begin, is_answered=True)

    def go(self, meeting: Meeting) -> None:
        """Have every process of the host started."""
        self._talk.put(Go(meeting))

    def signal(self, nodes: tuple[NodeId, ...], signum: int) -> None:
        """Have a signal sent to processes, and to what they have started."""
        self._talk.put(Send(nodes, signum))

    def start_again(self, node: NodeId) -> None:
        """Have the process of a node that has ended started once more."""
        if self._is_lost:
            self._listener.ended(node, Exit(255, f"cannot be started again: {self.name} is lost"))
        else:
            self._talk.put(StartAgain(node))

    def step(self, now_s: float) -> None:
        """Notice an agent that is silent; time in which this process did not run is not counted."""
        self._starter.step()
        self._talk.step(now_s)

    def leave(self) -> None:
        """Have the agent leave, which ends what is left on its host."""
        self._talk.put(Bye())

    def close(self) -> None:
        """Give everything back."""
        self._is_lost = True
        self._hang_up()
        self._starter.close(self)

    def lose(self, reason: str) -> None:
        """Give the host up."""
        self._hang_up()
        if not self._is_lost:
            self._is_lost = True
            self._listener.lost(self, reason)

    def _read(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lose("the connection to its agent has ended")
            return
        self._talk.take(data)

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        written = self._talk.close()
        if written is not None:
            with contextlib.suppress(OSError):
                os.close(written)
        if link is not None:
            if link.fileno() in self._selector.get_map():
                self._selector.unregister(link.fileno())
            link.close()
