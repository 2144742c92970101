"""One number for what one event brings."""

from bireme.core.negotiation.messages import Forget
from bireme.core.negotiation.outbox import Outbox


def test_items_keep_their_order_and_share_a_number():
    outbox = Outbox()
    outbox.put((0, 1), Forget(1))
    outbox.put((1,), Forget(2))
    assert outbox.next_number == 1
    sends = {send.rank: send.verdict for send in outbox.flush()}
    assert sends[0].items == [Forget(1)]
    assert sends[1].items == [Forget(1), Forget(2)]
    assert sends[0].number == sends[1].number == 1
    assert outbox.flush() == []
    assert outbox.next_number == 2
