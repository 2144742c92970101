import pytest

from bireme.core.replies import Replies, fault_code
from bireme.errors import (
    ConfigError,
    JobError,
    StateError,
    UnknownKeyError,
    UnsupportedError,
)
from bireme.wire.messages import Ack, FaultCode, Value


def test_one_request_gets_one_message():
    replies = Replies()
    for index in range(3):
        replies.ack(1, 7, 0, index, 4)
    replies.ack(2, 7, 0, 0, 4)
    first, second = replies.take(view=3)
    assert isinstance(first.message, Ack)
    assert len(first.message.entries) == 3
    assert (second.link, first.message.view) == (2, 3)
    assert replies.take(view=3) == []


@pytest.mark.parametrize("sizes", [[40, 40, 40], [200, 1], [0, 0, 0], [100, 100]])
def test_values_are_cut_into_messages_of_about_the_bundles_size(sizes):
    replies = Replies()
    replies.bundle_bytes = 100
    for index, size in enumerate(sizes):
        replies.value((1, 7), (0, index), 1, (f"h{index}", size, "raw"), 1)
    sent = replies.take(view=1)
    handles = [handle for send in sent for handle in send.payload]
    assert handles == [f"h{index}" for index in range(len(sizes))]
    for send in sent:
        assert isinstance(send.message, Value)
        assert len(send.message.entries) == len(send.payload)
        assert len(send.payload) == 1 or send.message.payload_size() <= 100


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), FaultCode.BAD_REQUEST),
        (UnknownKeyError("x"), FaultCode.UNKNOWN_KEY),
        (UnsupportedError("x"), FaultCode.UNSUPPORTED),
        (StateError("x"), FaultCode.WRONG_STATE),
        (JobError("x"), FaultCode.INTERNAL),
    ],
)
def test_each_error_has_the_code_of_its_class(error, code):
    assert fault_code(error) is code
