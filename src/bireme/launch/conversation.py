"""The launcher's part in its talk with one agent, whatever carries it.

Hosts that a remote shell reaches (:mod:`bireme.launch.remote`) and hosts whose agents call
(:mod:`bireme.launch.called`) differ in how the connection comes about; what is said is the same.
"""

import selectors
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from bireme.errors import RemoteProtocolError
from bireme.launch.contact import Contact
from bireme.launch.exits import Exit
from bireme.launch.outbox import Outbox
from bireme.launch.site import Listener, Site
from bireme.launch.talk import (
    Asked,
    Begin,
    Ended,
    Failed,
    Files,
    FromAgent,
    Lines,
    Pulse,
    Ready,
    ToAgent,
    Unframer,
    frame,
)
from bireme.version import __version__

__all__ = ("READ_BYTES", "Conversation")

READ_BYTES = 256 << 10
"""How much is read or copied at once."""
_SILENCE_S = 60.0


class Conversation:
    """Says what a host has to do, and tells the listener what comes back.

    Args:
        site: The host, as the listener knows it.
        selector: Where the descriptor goes that is written to.
        listener: Told what happens.
        lose: Called with a reason when nothing more can come of it.

    Guarantees:
        Nothing blocks. An agent that has been heard and then is silent for a minute is lost.
    """

    def __init__(
        self,
        site: Site,
        selector: selectors.BaseSelector,
        listener: Listener,
        lose: Callable[[str], None],
    ) -> None:
        self._site = site
        self._selector = selector
        self._listener = listener
        self._lose = lose
        self._unframer = Unframer(FromAgent, has_mark=True)
        self._contact = Contact(_SILENCE_S)
        self._outbox: Outbox | None = None
        self._archive: Path | None = None
        self._files: BinaryIO | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the agent has been heard."""
        return self._unframer.has_begun

    @property
    def noise(self) -> bytes:
        """The last of what came before its first word."""
        return self._unframer.noise

    def bring(self, archive: Path) -> None:
        """Have files unpacked in the job's ``sync_dir`` before anything else."""
        self._archive = archive

    def begin(
        self, fd: int, begin: Begin, preface: bytes = b"", *, is_answered: bool = False
    ) -> None:
        """Write to ``fd`` from now on: ``preface`` as it is, the host's part, and its files.

        ``is_answered`` says that the agent itself is at the other end, and its silence counts.
        """
        self._outbox = Outbox(fd)
        if is_answered:
            self._contact.heard(time.monotonic())
        self._write_out(preface + frame(begin))
        if begin.sync_dir and self._archive is not None:
            self._files = self._archive.open("rb")
            self._put_files()

    def put(self, message: ToAgent) -> None:
        """Say something, as soon as the connection takes it; nothing once it is closed."""
        self._write_out(frame(message))

    def take(self, data: bytes) -> None:
        """Tell the listener what these bytes from the agent say."""
        self._contact.heard(time.monotonic())
        try:
            messages = self._unframer.feed(data)
        except RemoteProtocolError as error:
            self._lose(
                f"its agent cannot be understood: {error}; is bireme {__version__}, which is here, "
                "installed there?"
            )
            return
        for message in messages:
            self._hear(message)

    def step(self, now_s: float) -> None:
        """Give a sign of life, and notice that none comes."""
        if self._outbox is None:
            return
        if self.has_begun and self._contact.owes_pulse(now_s):
            self.put(Pulse())
        if self._contact.is_lost(now_s):
            self._lose(f"nothing has been heard from it for {_SILENCE_S:g} s")

    def close(self) -> int | None:
        """Write no more, and return the descriptor, which is whose it was, if there is one."""
        outbox, self._outbox = self._outbox, None
        if self._files is not None:
            self._files.close()
            self._files = None
        if outbox is None:
            return None
        if outbox.fd in self._selector.get_map():
            self._selector.unregister(outbox.fd)
        return outbox.fd

    def _write_out(self, data: bytes) -> None:
        outbox = self._outbox
        if outbox is None:
            return
        outbox.put(data)
        if outbox.size_bytes and outbox.fd not in self._selector.get_map():
            self._selector.register(outbox.fd, selectors.EVENT_WRITE, self._flush)

    def _put_files(self) -> None:
        """Read on where the last piece has left; the archive is never in memory as a whole."""
        outbox = self._outbox
        while self._files is not None and outbox is not None and outbox.size_bytes < READ_BYTES:
            data = self._files.read(READ_BYTES)
            if not data:
                self._files.close()
                self._files = None
            self.put(Files(data, is_last=not data))

    def _flush(self) -> None:
        assert self._outbox is not None
        self._outbox.flush()
        self._put_files()
        if not self._outbox.size_bytes:
            self._selector.unregister(self._outbox.fd)

    def _hear(self, message: ToAgent | FromAgent) -> None:
        match message:
            case Lines(node, lines, is_error):
                self._listener.lines(node, lines, is_error)
            case Ended(node, status):
                self._listener.ended(node, Exit(status))
            case Asked(signum):
                self._listener.asked(signum)
            case Failed(version=version) if version not in ("", __version__):
                self._lose(_other(version))
            case Failed(text):
                self._lose(text)
            case Ready(version=version) if version != __version__:
                self._lose(_other(version))
            case Ready():
                self._listener.ready(self._site, message)


def _other(version: str) -> str:
    return f"it has bireme {version}, and {__version__} is here; install the same on both"
