from tests.core.nodes import entries

from bireme.core.calls import PushCall
from bireme.core.opencalls import OpenCall
from bireme.core.requests import Lane, PullRequest, PushRequest


def test_a_push_is_built_anew_from_what_is_not_acknowledged():
    call = OpenCall(PushCall(1, entries(0, 1), 9.0, weight=0.5, mean=True, priority=4), 9.0, 2)
    request = PushRequest(7, call, 0, 3, (3, 4))
    for item in call.call.entries:
        request.items[item[0], 0] = (Lane(0), item)
    request.items[1, 0][0].number = 5
    message = request.message(2)
    assert (message.request, message.view, message.rank, message.weight) == (7, 2, 3, 0.5)
    assert (message.mean, message.want_value, request.priority) == (True, False, 4)
    assert message.priority == 4
    assert [message.round + entry.lead for entry in message.entries] == [0, 5]
    del request.items[0, 0]
    assert [entry.key_id for entry in request.message(3).entries] == [1]
    assert request.payload() == ("payload 1",)
    assert request.message(3).request == 7


def test_a_pull_asks_for_what_has_not_arrived():
    request = PullRequest(7, OpenCall(PushCall(1, (), 9.0), 9.0, 1), 0, {(0, 0): 3, (1, 0): 4}, 0)
    del request.slots[0, 0]
    pull = request.message(1)
    assert [(e.key_id, pull.min_version + e.lead) for e in pull.entries] == [(1, 4)]
