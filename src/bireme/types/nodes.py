"""Nodes: the roles of a job and the name that each of its members goes by.

Pure values, used by every layer above; they also travel on the wire, as two-element arrays.
"""

import re
from enum import StrEnum
from typing import Annotated

import msgspec

from bireme.errors import ConfigError

__all__ = ("SCHEDULER", "NodeId", "Role", "server", "worker")

_NAME = re.compile(r"(?:(?P<scheduler>H)|(?P<letter>[SW])\[(?P<rank>\d{1,9})\])")
_MAX_RANKS = 2**31


class Role(StrEnum):
    """What a process does in a job: one scheduler, any number of servers and workers."""

    SCHEDULER = "scheduler"
    SERVER = "server"
    WORKER = "worker"

    @property
    def letter(self) -> str:
        """The letter that stands for the role in names: ``H``, ``S`` or ``W``."""
        return {Role.SCHEDULER: "H", Role.SERVER: "S", Role.WORKER: "W"}[self]


class NodeId(msgspec.Struct, frozen=True, order=True, array_like=True, forbid_unknown_fields=True):
    """The name of a node: its role, and its rank among those of that role.

    Ranks follow the order of launch, never the order of arrival. Nodes sort by role
    (scheduler, servers, workers), then by rank.

    Args:
        role: What the node does.
        rank: Number among the nodes of that role, >= 0; the scheduler's is 0.

    Raises:
        ConfigError: There is no such rank.

    Example:
        >>> NodeId(Role.WORKER, 3), NodeId(Role.SERVER, 0), SCHEDULER
        (W[3], S[0], H)
    """

    role: Role
    rank: Annotated[int, msgspec.Meta(ge=0, lt=_MAX_RANKS)]

    def __post_init__(self) -> None:
        if not 0 <= self.rank < _MAX_RANKS:
            raise ConfigError(f"a node's rank must be >= 0 and < 2**31, got {self.rank}")
        if self.role is Role.SCHEDULER and self.rank != 0:
            raise ConfigError(f"a job has one scheduler, whose rank is 0; got {self.rank}")

    def __repr__(self) -> str:
        return "H" if self.role is Role.SCHEDULER else f"{self.role.letter}[{self.rank}]"

    def __str__(self) -> str:
        return repr(self)

    @classmethod
    def parse(cls, text: str) -> "NodeId":
        """Read ``"H"``, ``"S[0]"`` or ``"W[3]"``.

        Raises:
            ConfigError: ``text`` is none of these.
        """
        match = _NAME.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"cannot read {text!r} as a node; write H, S[0] or W[3]")
        if match["scheduler"]:
            return SCHEDULER
        return cls(Role.SERVER if match["letter"] == "S" else Role.WORKER, int(match["rank"]))


SCHEDULER = NodeId(Role.SCHEDULER, 0)
"""The one scheduler of a job."""


def server(rank: int) -> NodeId:
    """Return the name of the server ``rank``.

    Example:
        >>> server(1)
        S[1]
    """
    return NodeId(Role.SERVER, rank)


def worker(rank: int) -> NodeId:
    """Return the name of the worker ``rank``.

    Example:
        >>> worker(0)
        W[0]
    """
    return NodeId(Role.WORKER, rank)
