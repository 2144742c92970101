"""What is asked again is the same question under the view of the moment."""

import pytest

from bireme.core.calls import BarrierCall
from bireme.core.opencalls import OpenCall
from bireme.core.questions import (
    BarrierRequest,
    CommandRequest,
    DeclareRequest,
    LeaveRequest,
    RoundsRequest,
    StatusQuestion,
)
from bireme.core.requests import SCHEDULER_RANK
from bireme.types.dtypes import DType
from bireme.wire.messages import (
    Barrier,
    Command,
    CommandKind,
    Declare,
    KeyDecl,
    Leave,
    Rounds,
    StatusRequest,
)

CALL = OpenCall(BarrierCall(1, "epoch", 9.0), 9.0, 1)
KEYS = (KeyDecl("weight", (2,), DType.FLOAT32),)
BODY: dict[str, object] = {"lr": 0.1}


@pytest.mark.parametrize(
    ("request_", "server", "messages"),
    [
        (RoundsRequest(7, CALL, 2, (4, 5)), 2, [Rounds(7, view, (4, 5)) for view in (1, 2)]),
        (DeclareRequest(7, CALL, 3, KEYS), SCHEDULER_RANK, [Declare(7, 3, KEYS)] * 2),
        (BarrierRequest(7, CALL, "epoch", 5), SCHEDULER_RANK, [Barrier("epoch", 5)] * 2),
        (LeaveRequest(7, CALL, "done"), SCHEDULER_RANK, [Leave("done")] * 2),
        (StatusQuestion(7, CALL, 1), 1, [StatusRequest(7)] * 2),
        (
            CommandRequest(7, CALL, 1, 3, CommandKind.SET_OPTIMIZER, BODY, ("piece", 12)),
            1,
            [Command(7, view, 3, CommandKind.SET_OPTIMIZER, BODY, 12) for view in (1, 2)],
        ),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "message") else "",
)
def test_a_question_keeps_its_number_and_takes_the_view_of_the_moment(request_, server, messages):
    assert request_.server == server
    assert [request_.message(view) for view in (1, 2)] == messages


@pytest.mark.parametrize(("piece", "payload"), [(None, ()), (("piece", 12), ("piece",))])
def test_a_command_carries_its_piece_if_it_has_one(piece, payload):
    kind = CommandKind.SET_OPTIMIZER
    assert CommandRequest(7, CALL, 1, 3, kind, BODY, piece).payload() == payload
