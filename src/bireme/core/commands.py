"""Which of the workers' commands a server carries out, and when.

In a symmetric script every worker sends the same changes of the training (optimizer, learning
rate, ...). They count once: those of the *leader*, the lowest rank that takes part, are carried
out; what the others send is answered and kept until the leader has sent as many, so that nothing
is lost when the leader dies first. Other commands are carried out for whoever sends them.

A leader's command reaches the server after its earlier pushes are answered and before its later
ones go out (see :class:`~bireme.core.calls.CommandCall`), so in synchronous training it takes
effect exactly from the round that the leader has reached: that round may be open, but it cannot
be complete without the leader. Called by :mod:`bireme.core.server`.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from bireme.wire.messages import Command, CommandKind

__all__ = ("CommandLog",)

_FOR_ALL = frozenset(
    {
        CommandKind.SET_OPTIMIZER,
        CommandKind.SET_HYPER_PARAMETERS,
        CommandKind.LOAD_STATE,
    }
)


class _Sender(msgspec.Struct):
    """What one rank has sent."""

    incarnation: int
    last_number: int = -1
    changes: int = 0
    waiting: deque[Command] = msgspec.field(default_factory=deque)


class CommandLog:
    """Tells repeated commands from new ones, and the leader's from the others'.

    Example:
        >>> log = CommandLog()
        >>> command = Command(0, 1, 0, CommandKind.SET_OPTIMIZER, {"name": "SGD"})
        >>> [log.take(rank, 1, command, leader=0) for rank in (1, 0, 0)]
        ['kept', 'do', 'repeated']
    """

    def __init__(self) -> None:
        self._senders: dict[int, _Sender] = {}

    def take(self, rank: int, incarnation: int, command: Command, leader: int) -> str:
        """Return ``do``, ``kept`` (answered, not carried out) or ``repeated``.

        Args:
            rank: Who sends it.
            incarnation: Numbers begin anew with each.
            command: The command; its numbers grow within an incarnation.
            leader: The rank whose changes count.
        """
        sender = self._senders.get(rank)
        if sender is None or sender.incarnation != incarnation:
            sender = self._senders[rank] = _Sender(incarnation)
        if command.number <= sender.last_number:
            return "repeated"
        sender.last_number = command.number
        if command.command not in _FOR_ALL:
            return "do"
        sender.changes += 1
        if rank == leader:
            self._forget(sender.changes)
            return "do"
        head = self._senders.get(leader)
        if head is None or head.changes < sender.changes:
            sender.waiting.append(command)
        return "kept"

    def succeed(self, leader: int, carry_out: Callable[[Command], None]) -> None:
        """Carry out what the new leader has sent and the one before had not.

        Args:
            leader: The lowest rank that takes part now.
            carry_out: Does a command; must not raise.
        """
        sender = self._senders.get(leader)
        if sender is None:
            return
        while sender.waiting:
            carry_out(sender.waiting.popleft())
        self._forget(sender.changes)

    def _forget(self, changes: int) -> None:
        for sender in self._senders.values():
            while sender.waiting and sender.changes - len(sender.waiting) < changes:
                sender.waiting.popleft()
