"""Every message of the protocol under one roof, and the table from a header's kind to its class.

``core`` and ``node`` import messages from here.
"""

from bireme.types.choices import Consistency as Consistency
from bireme.types.choices import DeathPolicy as DeathPolicy
from bireme.types.choices import Layout as Layout
from bireme.wire.control import Abort as Abort
from bireme.wire.control import Barrier as Barrier
from bireme.wire.control import BarrierDone as BarrierDone
from bireme.wire.control import Declare as Declare
from bireme.wire.control import Declared as Declared
from bireme.wire.control import Heartbeat as Heartbeat
from bireme.wire.control import HeartbeatAck as HeartbeatAck
from bireme.wire.control import JobConfig as JobConfig
from bireme.wire.control import Join as Join
from bireme.wire.control import Joined as Joined
from bireme.wire.control import KeyDecl as KeyDecl
from bireme.wire.control import KeyPlacement as KeyPlacement
from bireme.wire.control import Leave as Leave
from bireme.wire.control import LeaveAck as LeaveAck
from bireme.wire.control import Lost as Lost
from bireme.wire.control import NodeInfo as NodeInfo
from bireme.wire.control import Refused as Refused
from bireme.wire.control import Shutdown as Shutdown
from bireme.wire.control import SlotPlacement as SlotPlacement
from bireme.wire.control import Start as Start
from bireme.wire.control import Status as Status
from bireme.wire.control import StatusRequest as StatusRequest
from bireme.wire.control import ViewChange as ViewChange
from bireme.wire.data import Ack as Ack
from bireme.wire.data import Attach as Attach
from bireme.wire.data import Attached as Attached
from bireme.wire.data import Command as Command
from bireme.wire.data import CommandDone as CommandDone
from bireme.wire.data import CommandKind as CommandKind
from bireme.wire.data import Fault as Fault
from bireme.wire.data import FaultCode as FaultCode
from bireme.wire.data import Init as Init
from bireme.wire.data import InitEntry as InitEntry
from bireme.wire.data import Pull as Pull
from bireme.wire.data import PullEntry as PullEntry
from bireme.wire.data import PullRows as PullRows
from bireme.wire.data import Push as Push
from bireme.wire.data import PushEntry as PushEntry
from bireme.wire.data import RoundEntry as RoundEntry
from bireme.wire.data import Rounds as Rounds
from bireme.wire.data import RoundsReply as RoundsReply
from bireme.wire.data import Rows as Rows
from bireme.wire.data import SlotRound as SlotRound
from bireme.wire.data import Stale as Stale
from bireme.wire.data import Value as Value
from bireme.wire.data import ValueEntry as ValueEntry
from bireme.wire.probe import Ping as Ping
from bireme.wire.probe import Pong as Pong
from bireme.wire.probe import Probe as Probe
from bireme.wire.probe import Probed as Probed
from bireme.wire.probe import Target as Target
from bireme.wire.relay import Declined as Declined
from bireme.wire.relay import Fetch as Fetch
from bireme.wire.relay import Handover as Handover
from bireme.wire.relay import JointPush as JointPush
from bireme.wire.schema import Kind as Kind
from bireme.wire.schema import Message as Message

__all__ = (
    "MESSAGES",
    "Abort",
    "Ack",
    "Attach",
    "Attached",
    "Barrier",
    "BarrierDone",
    "Command",
    "CommandDone",
    "CommandKind",
    "Consistency",
    "DeathPolicy",
    "Declare",
    "Declared",
    "Declined",
    "Fault",
    "FaultCode",
    "Fetch",
    "Handover",
    "Heartbeat",
    "HeartbeatAck",
    "Init",
    "InitEntry",
    "JobConfig",
    "Join",
    "Joined",
    "JointPush",
    "KeyDecl",
    "KeyPlacement",
    "Kind",
    "Layout",
    "Leave",
    "LeaveAck",
    "Lost",
    "Message",
    "NodeInfo",
    "Ping",
    "Pong",
    "Probe",
    "Probed",
    "Pull",
    "PullEntry",
    "PullRows",
    "Push",
    "PushEntry",
    "Refused",
    "RoundEntry",
    "Rounds",
    "RoundsReply",
    "Rows",
    "Shutdown",
    "SlotPlacement",
    "SlotRound",
    "Stale",
    "Start",
    "Status",
    "StatusRequest",
    "Target",
    "Value",
    "ValueEntry",
    "ViewChange",
)

MESSAGES: dict[Kind, type[Message]] = {
    message.kind: message
    for message in (
        Join,
        Joined,
        Refused,
        Start,
        ViewChange,
        Heartbeat,
        HeartbeatAck,
        Declare,
        Declared,
        Barrier,
        BarrierDone,
        Leave,
        LeaveAck,
        Abort,
        Shutdown,
        StatusRequest,
        Status,
        Attach,
        Attached,
        Init,
        Push,
        Ack,
        Pull,
        Value,
        PullRows,
        Rows,
        Command,
        CommandDone,
        Stale,
        Fault,
        Rounds,
        RoundsReply,
        Handover,
        JointPush,
        Declined,
        Fetch,
        Probe,
        Probed,
        Ping,
        Pong,
    )
}
"""The class of each kind."""
