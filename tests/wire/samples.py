"""One or more fixed messages of every kind; the golden bytes are theirs."""

from bireme.types import DType, NodeId, Role, server, worker
from bireme.wire import messages as m

INFO = m.NodeInfo(worker(1), 4, "leda", 4711, ("tcp://10.0.0.7:4000", "unix:///run/x"))
SERVER_INFO = m.NodeInfo(server(0), 2, "kastor", 7, ("tcp://10.0.0.8:4001",), 2.5)
SLOT_ROUNDS = (m.SlotRound(3, 0, 7), m.SlotRound(3, 1, 8))

SAMPLES: dict[str, m.Message] = {
    "Join": m.Join(Role.WORKER, 1, "leda", 4711, ("tcp://10.0.0.7:4000",), 2, 1, software="0.2.0"),
    "Join, any rank": m.Join(Role.SERVER, None, "kastor", 7, (), 2, 1, bandwidth=2.5),
    "Joined": m.Joined(worker(1), 4, 0.25, 5.0),
    "Refused": m.Refused("this job has 2 workers; the node was told 3"),
    "Start": m.Start(1, (INFO, SERVER_INFO), m.JobConfig(2, 1, 2)),
    "Start, replacement": m.Start(
        9,
        (INFO,),
        m.JobConfig(2, 1, 8, death_policy=m.DeathPolicy.WAIT, replace_timeout_s=30.5),
        replacement=True,
    ),
    "ViewChange": m.ViewChange(
        2, (SERVER_INFO,), (m.Lost(worker(0), 1, "leda", "killed"),), (INFO,), (worker(3),)
    ),
    "Heartbeat": m.Heartbeat(1.5, 2),
    "HeartbeatAck": m.HeartbeatAck(1.5, 2),
    "Declare": m.Declare(
        5,
        0,
        (
            m.KeyDecl("weight", (4, 3), DType.FLOAT32),
            m.KeyDecl(
                -3,
                (),
                DType.BFLOAT16,
                m.Layout.ROWS,
                splittable=False,
                consistency=m.Consistency.ASYNC,
            ),
        ),
    ),
    "Declared": m.Declared(
        5,
        (
            m.KeyPlacement(3, "weight", (m.SlotPlacement(0, 0, 6), m.SlotPlacement(1, 6, 6)), True),
            m.KeyPlacement(4, -3, (), new=False),
        ),
    ),
    "Barrier": m.Barrier("start", 0),
    "BarrierDone": m.BarrierDone("start", 0),
    "Leave": m.Leave("done"),
    "LeaveAck": m.LeaveAck(),
    "Abort": m.Abort(worker(1), "leda", "killed by SIGKILL", 137),
    "Abort, nobody's fault": m.Abort(None, "", "interrupted", 130),
    "Shutdown": m.Shutdown(),
    "StatusRequest": m.StatusRequest(6),
    "Status": m.Status(6, {"nodes": [{"name": "W[0]", "age_s": 0.5, "late": None}], "ok": True}),
    "Fault": m.Fault(m.FaultCode.UNKNOWN_KEY, "no key 'bias'", 12, SLOT_ROUNDS),
    "Attach": m.Attach(worker(1), 4, 2),
    "Attached": m.Attached(server(0), 2, 2),
    "Init": m.Init(
        10,
        1,
        0,
        (
            m.InitEntry(3, 0, DType.FLOAT32, 6, 3, m.Layout.DENSE, m.Consistency.SYNC, 24, (2, 3)),
            m.InitEntry(
                3, 1, DType.FLOAT32, 6, 3, m.Layout.DENSE, m.Consistency.BOUNDED, 0, staleness=2
            ),
            m.InitEntry(4, 0, DType.INT8, 1, 1, m.Layout.ROWS, m.Consistency.ASYNC, 0, (1, 1)),
        ),
    ),
    "Init, of a table": m.Init(
        10,
        1,
        1 << 40,
        (m.InitEntry(5, 2, DType.FLOAT32, 0, 16, m.Layout.TABLE, m.Consistency.ASYNC, 50),),
    ),
    "Push": m.Push(
        11,
        2,
        1,
        1,
        2,
        1.0,
        mean=False,
        want_value=True,
        round=7,
        priority=5,
        entries=(
            m.PushEntry(3, 0, 0, 24),
            m.PushEntry(3, 1, 1, 4, "2bit"),
            m.PushEntry(4, 0, 0, 36, "raw", m.Layout.ROWS, 3),
        ),
    ),
    "Ack": m.Ack(11, 2, SLOT_ROUNDS),
    "Pull": m.Pull(12, 2, 7, -3, (m.PullEntry(3, 0, 0), m.PullEntry(3, 1, 1))),
    "Value": m.Value(12, 2, 7, (m.ValueEntry(3, 0, 1, 24), m.ValueEntry(3, 1, 0, 12, "fp16"))),
    "PullRows": m.PullRows(13, 2, 4, 0, 8, 3),
    "Rows": m.Rows(13, 2, 4, 0, 8, 3, 12),
    "Command": m.Command(
        0, 2, 0, m.CommandKind.SET_OPTIMIZER, {"name": "SGD", "options": {"lr": 0.1}}
    ),
    "Command, with payload": m.Command(1, 2, 0, m.CommandKind.LOAD_STATE, {"b": b"\x00\xff"}, 16),
    "Command, for a table": m.Command(2, 2, 1 << 40, m.CommandKind.TABLE, {"op": "report"}),
    "CommandDone": m.CommandDone(0),
    "Stale": m.Stale(3, 11, SLOT_ROUNDS),
    "Stale, whole request": m.Stale(3, None),
    "Rounds": m.Rounds(14, 3, (3, 4)),
    "RoundsReply": m.RoundsReply(14, 3, (m.RoundEntry(3, 0, 8, 7),)),
    "Rounds, of a rank": m.Rounds(15, 3, (3,), 2),
    "Handover": m.Handover(
        16, 3, 2, DType.FLOAT32, 1, 0.5, False, True, 7, 0, (m.PushEntry(3, 0, 0, 64),)
    ),
    "Handover, mixed": m.Handover(
        17, 3, 2, None, 1, 1.0, True, False, 7, -3, (m.PushEntry(3, 0, 0, 4, "2bit:0.5"),)
    ),
    "JointPush": m.JointPush(
        18, 3, 0, 0, 2, (0.5, 1.0), True, False, True, 7, 0, (m.PushEntry(3, 0, 0, 64),)
    ),
    "JointPush, of one": m.JointPush(
        19, 3, 0, 1, 2, (0.5,), False, True, False, 7, 9, (m.PushEntry(3, 0, 1, 4, "fp16"),)
    ),
    "Fetch": m.Fetch(20, 3, 2, 1, 7, -3, (m.PullEntry(3, 0, 0), m.PullEntry(3, 1, 1))),
    "Declined": m.Declined(16, "its round is under way without it"),
    "Probe": m.Probe(3, 0.25, 1 << 20, (m.Target(server(0), ("tcp://10.0.0.8:4001",)),)),
    "Probed": m.Probed(3, 6.25e6, 0.001, (server(1),)),
    "Ping": m.Ping(7, 64),
    "Pong": m.Pong(7, 64),
}

NODES: tuple[NodeId, ...] = (worker(0), worker(12), server(3), NodeId(Role.SCHEDULER, 0))
