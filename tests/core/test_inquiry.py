import pytest
from tests.core.nodes import entries

from bireme.core.bunches import Bunch
from bireme.core.calls import (
    BarrierCall,
    CommandCall,
    InitCall,
    LeaveCall,
    PullCall,
    PushCall,
    ReadyCall,
    RowsCall,
)
from bireme.core.inquiry import Inquiry, describe
from bireme.core.opencalls import OpenCall
from bireme.types.choices import Consistency, Layout
from bireme.types.dtypes import DType
from bireme.wire.messages import CommandKind, InitEntry


def inquiry(call, slots=()):
    return Inquiry(OpenCall(call, 0.0, 1), set(slots), 9.0)


def test_a_barrier_names_who_has_not_come():
    found = inquiry(BarrierCall(1, "epoch", 2.5))
    found.ask(4, "H")
    assert not found.complete
    others = {"name": "other", "missing": [0]}
    report = {"barriers": [others, {"name": "epoch", "missing": [3, 5]}]}
    assert not found.answered(5, report)
    assert found.answered(4, report)
    assert found.complete
    assert str(found.error({})) == "barrier 'epoch' took longer than 2.5 s: W[3], W[5] missing"


def test_the_start_names_the_missing_nodes():
    found = inquiry(ReadyCall(1, 5.0))
    found.ask(4, "H")
    found.answered(4, {"missing": ["S[1]", "W[0]"]})
    assert "the job waits for S[1], W[0]" in str(found.error({}))


def test_only_slots_of_the_call_count():
    found = inquiry(PullCall(1, ((0, 0),), 1.0), [(0, 0)])
    found.ask(4, "S[0]")
    found.answered(4, {"open": [{"key_id": 9, "index": 0, "round": 1, "missing": [7]}]})
    assert "W[7]" not in str(found.error({}))


def test_a_key_without_a_value_is_said_to_be_so():
    found = inquiry(PullCall(1, ((0, 0),), 1.0), [(0, 0)])
    found.ask(4, "S[0]")
    found.answered(4, {"open": [], "not_initialised": [[0, 0]]})
    assert "initialised" in str(found.error({0: "w"}))


def test_who_does_not_answer_is_named():
    found = inquiry(PullCall(1, ((0, 0),), 1.0), [(0, 0)])
    found.ask(4, "S[0]")
    found.add("there is no link to S[1]")
    text = str(found.error({}))
    assert "S[0] does not answer" in text
    assert "no link to S[1]" in text


def test_a_thousand_missing_workers_do_not_fill_the_screen():
    found = inquiry(BarrierCall(1, "b", 1.0))
    found.ask(4, "H")
    found.answered(4, {"barriers": [{"name": "b", "missing": list(range(1000))}]})
    assert len(str(found.error({}))) < 300


INIT = InitEntry(3, 0, DType.FLOAT32, 1, 1, Layout.DENSE, Consistency.SYNC, 4)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (PushCall(1, entries(0), 1.0), "a push of key 'w'"),
        (PushCall(1, entries(0, 1), 1.0, want_value=True), "a pushpull of keys 'w', 1"),
        (PushCall(1, entries(*range(9)), 1.0), "a push of keys 'w', 1, 2, 3 and 5 more"),
        (PushCall(1, (), 1.0, bunches=((Bunch(0, [(0, 0, 8)]), "all"),)), "a push of key 'w'"),
        (PullCall(1, ((0, 0),), 1.0, bunches=(Bunch(0, [(4, 0, 8)]),)), "a pull of keys 'w', 4"),
        (RowsCall(1, 0, 0, b"", 0, 0, 1.0), "a pull of rows of key 'w'"),
        (InitCall(1, 0, ((INIT, None),), 1.0), "the init of key 3"),
        (CommandCall(1, 0, CommandKind.SAVE_STATE, {}, 1.0), "command save_state"),
        (LeaveCall(1, 1.0), "leaving the job"),
    ],
)
def test_calls_are_described_in_words(call, text):
    assert describe(call, {0: "w"}) == text
