"""What the payloads of a node do, for its timeline. Called by the runtime that has one."""

from collections.abc import Callable

from bireme.observe.timeline import Timeline
from bireme.wire.messages import Message, Push, Value

__all__ = ("received", "sending")


def sending(
    timeline: Timeline, message: Message, priority: int, on_sent: Callable[[], None]
) -> Callable[[], None]:
    """Return what to call when the payload of ``message`` has left, in place of ``on_sent``."""
    if not isinstance(message, Push | Value):
        return on_sent
    began_s, name, size_bytes = timeline.now_s(), _name(timeline, message), message.payload_size()

    def sent() -> None:
        on_sent()
        details = {"bytes": size_bytes, "priority": priority}
        timeline.crossing("sent", name, began_s, timeline.now_s(), **details)

    return sent


def received(timeline: Timeline, message: Message) -> None:
    """Note that a payload has arrived."""
    if isinstance(message, Push | Value):
        timeline.moment("received", _name(timeline, message), bytes=message.payload_size())


def _name(timeline: Timeline, message: Push | Value) -> str:
    kind = "push" if isinstance(message, Push) else "value"
    entries = message.entries
    if not entries:
        return kind
    first = timeline.label(entries[0].key_id, entries[0].index)
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return f"{kind} {first}{more}"
