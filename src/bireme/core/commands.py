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

from bireme.errors import StateError
from bireme.wire.messages import Command, CommandKind

__all__ = ("MOST_WAITING", "CommandLog")

MOST_WAITING = 256
"""Changes that one rank may be ahead of the leader."""

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
    waiting: deque[tuple[int, Command]] = msgspec.field(default_factory=deque)
    """What its changes were that the leader has not sent yet, with their numbers from 1."""


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

        Other numbers for an optimizer of the same class take the place of those before.

        Args:
            rank: Who sends it.
            incarnation: Numbers begin anew with each.
            command: The command; its numbers grow within an incarnation.
            leader: The rank whose changes count.

        Raises:
            StateError: The rank is too far ahead of the leader; nothing has changed.
        """
        sender = self._senders.get(rank)
        if sender is None or sender.incarnation != incarnation:
            sender = self._senders[rank] = _Sender(incarnation)
        if command.number <= sender.last_number:
            return "repeated"
        if command.command in _FOR_ALL and rank != leader:
            self._keep(sender, rank, command, leader)
            sender.last_number = command.number
            return "kept"
        sender.last_number = command.number
        if command.command in _FOR_ALL:
            sender.changes += 1
            self._forget(sender.changes)
        return "do"

    def _keep(self, sender: _Sender, rank: int, command: Command, leader: int) -> None:
        head = self._senders.get(leader)
        if head is None or head.changes <= sender.changes:
            if sender.waiting and _replaces(command, sender.waiting[-1][1]):
                sender.waiting.pop()
            elif len(sender.waiting) >= MOST_WAITING:
                raise StateError(
                    f"W[{rank}] has changed the training {len(sender.waiting)} times more than "
                    f"W[{leader}], whose changes count; every worker must make the same changes"
                )
            sender.waiting.append((sender.changes + 1, command))
        sender.changes += 1

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
            carry_out(sender.waiting.popleft()[1])
        self._forget(sender.changes)

    def _forget(self, changes: int) -> None:
        for sender in self._senders.values():
            while sender.waiting and sender.waiting[0][0] <= changes:
                sender.waiting.popleft()


def _replaces(command: Command, before: Command) -> bool:
    """Whether carrying out ``command`` alone does the same as both."""
    kind = CommandKind.SET_OPTIMIZER
    return (
        command.command is before.command is kind
        and command.store == before.store
        and command.body.get("name") == before.body.get("name")
    )
