"""The short way of messages that repeat, as shells take it: first offered there, then handled.

A shell offers what is like an earlier message; a state machine must take nothing else by the short
way than what comes next, and then do as it does by the ordinary one. So the simulator offers
everything, by the toss of a coin. Called by :mod:`bireme.sim.process`.
"""

from bireme.core.actions import Action, Send
from bireme.core.calls import Call, PushCall
from bireme.core.events import Event, Received
from bireme.core.server import ServerCore
from bireme.core.worker import WorkerCore
from bireme.wire.messages import Push, Value

__all__ = ("offer",)


def offer(core: object, event: Event | Call, now_s: float) -> list[Action] | None:
    """Return what an event leads to by the short way; ``None`` if it does not take it.

    Example:
        >>> from bireme.core.events import Tick
        >>> offer(object(), Tick(), 0.0) is None
        True
    """
    if isinstance(core, ServerCore) and isinstance(event, Received):
        message = event.message
        if isinstance(message, Push):
            numbers = message.request, message.round
            return core.push_again(event.link, message, numbers, event.payload, now_s)
    elif isinstance(core, WorkerCore) and isinstance(event, Received):
        message = event.message
        if isinstance(message, Value):
            return core.express.value(message, message.request, event.payload, now_s)
    elif isinstance(core, WorkerCore) and isinstance(event, PushCall):
        return _pushed(core, event, now_s)
    return None


def _pushed(core: WorkerCore, call: PushCall, now_s: float) -> list[Action] | None:
    if len(call.bunches) != 1 or call.entries or not call.want_value:
        return None
    found = core.express.push(call, now_s)
    if found is None:
        return None
    link, request = found
    return [Send(link, request.message(core.view), request.payload(), request.priority)]
