"""What the user of a worker can ask: events of :class:`bireme.core.worker.WorkerCore`.

Every call has a number from the shell (never used twice) and a limit. It ends in exactly one
``Complete`` or ``Fail`` with that number, within its limit plus the short time that it takes to
ask who is missing.
"""

from typing import TypeAlias

import msgspec

from bireme.core.bunches import Bunch
from bireme.types.nodes import NodeId
from bireme.wire.messages import CommandKind, InitEntry, KeyDecl, Layout

__all__ = (
    "BarrierCall",
    "Call",
    "CommandCall",
    "DeclareCall",
    "InitCall",
    "LeaveCall",
    "PullCall",
    "PushCall",
    "ReadyCall",
    "ResumeCall",
    "RowsCall",
    "StatusCall",
)


class ReadyCall(msgspec.Struct, frozen=True):
    """Wait until the job is complete and every server is attached. Result: the ``Start``."""

    call: int
    timeout_s: float


class DeclareCall(msgspec.Struct, frozen=True):
    """Agree with all workers on keys. Result: the ``KeyPlacement`` of each key, in order.

    The same key declared by several workers is one key; a different shape, dtype or layout fails
    with ``ConfigError`` that names both declarations.
    """

    call: int
    store: int
    """Number of the store within the job, in order of creation on every worker."""
    keys: tuple[KeyDecl, ...]
    timeout_s: float


class InitCall(msgspec.Struct, frozen=True):
    """Give slots their first value (rank 0). Result: ``None``, when all servers have it.

    A slot that has a value keeps it: a replaced rank 0 changes nothing.
    """

    call: int
    store: int
    entries: tuple[tuple[InitEntry, object], ...]
    """What to tell the server, and the payload's handle (ignored when its ``payload_bytes`` is
    0); it must not change until ``Release``."""
    timeout_s: float


class PushCall(msgspec.Struct, frozen=True):
    """Push slots; with ``want_value`` also fetch the result (pushpull).

    Result: ``None`` when every push is acknowledged: its round is complete (sync) or it is
    applied (async). With ``want_value``, ``Deliver`` brings the values first. The limit ends the
    wait, not the push: a push that was once handed in is kept until it is acknowledged.

    At most one push per slot is under way; further ones follow in order.
    """

    call: int
    entries: tuple[tuple[int, int, object, int, str, Layout, int], ...]
    """``(key_id, index, payload, size_bytes, encoding, layout, num_rows)``; the last three go to
    the server as they are. The payload must not change until ``Release``. At most one entry for a
    slot."""
    timeout_s: float
    weight: float = 1.0
    """What the server multiplies the value by: this worker's share, > 0."""
    mean: bool = False
    """Divide the sum by the sum of weights; the same on every worker."""
    want_value: bool = False
    priority: int = 0
    bunches: tuple[tuple[Bunch, object], ...] = ()
    """More slots: bunches with the payload of each. No slot is in two of them, or in
    ``entries`` as well. Every bunch belongs to one worker."""


class PullCall(msgspec.Struct, frozen=True):
    """Fetch the current value of slots, after all that this worker has pushed to them.

    Result: ``None`` after the last ``Deliver``.
    """

    call: int
    slots: tuple[tuple[int, int], ...]
    """``(key_id, index)``, each at most once."""
    timeout_s: float
    priority: int = 0
    bunches: tuple[Bunch, ...] = ()
    """More slots, prepared; none of them is in ``slots`` too."""


class RowsCall(msgspec.Struct, frozen=True):
    """Fetch rows of one slot. Result: ``None`` after the ``Deliver``."""

    call: int
    key_id: int
    index: int
    payload: object
    """Row numbers within the slot, int64; must not change until ``Release``."""
    size_bytes: int
    num_ids: int
    timeout_s: float
    priority: int = 0
    ahead: int = 0
    """Wait for so many pushes to the slot beyond those handed in: the rows as they are then."""


class CommandCall(msgspec.Struct, frozen=True):
    """Change something on every server. Result: ``{server rank: (body, payload)}``, the answers.

    Answered payloads are valid until ``Complete`` has been carried out.

    A fence: a server gets it after it has answered this worker's earlier pushes, and later pushes
    go out after the server has answered it.

    A change of the training itself (``SET_*`` and ``LOAD_STATE``) counts once, when every worker
    of a symmetric script sends it: that of the lowest live rank is applied, at the round which
    that rank has reached; the others are answered with ``{"applied_by": rank}``.
    """

    call: int
    store: int
    command: CommandKind
    body: dict[str, object]
    """Plain data, for every server."""
    timeout_s: float
    pieces: dict[int, tuple[object, int]] = {}
    """By server rank: a payload's handle and its bytes, for the servers that get one."""


class BarrierCall(msgspec.Struct, frozen=True):
    """Wait for all workers. Result: ``None``."""

    call: int
    name: str
    timeout_s: float


class ResumeCall(msgspec.Struct, frozen=True):
    """Continue the numbering of a dead predecessor. Result: dict of key id to next round.

    For a replacement, after ``DeclareCall`` and before its first push.
    """

    call: int
    key_ids: tuple[int, ...]
    timeout_s: float
    together: bool = True
    """Keys are pushed once each step, all of them: take the smallest number for all, so that a
    half-delivered step is computed again. Otherwise each key takes its own."""


class StatusCall(msgspec.Struct, frozen=True):
    """Ask the scheduler or a server what it is waiting for. Result: the report, plain data."""

    call: int
    node: NodeId
    timeout_s: float


class LeaveCall(msgspec.Struct, frozen=True):
    """Leave the job. Result: ``None`` when the scheduler knows.

    Ends all other calls first with ``StateError``. A ``reason`` says that this worker failed, and
    the job's policy for a dead worker decides; without one the worker is done.
    """

    call: int
    timeout_s: float
    reason: str = ""


Call: TypeAlias = (
    ReadyCall
    | DeclareCall
    | InitCall
    | PushCall
    | PullCall
    | RowsCall
    | CommandCall
    | BarrierCall
    | ResumeCall
    | StatusCall
    | LeaveCall
)
