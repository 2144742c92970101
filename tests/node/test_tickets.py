import pytest
import torch

from bireme.errors import JobError
from bireme.node.memory import bytes_of
from bireme.node.tickets import Place, Ticket


def test_a_single_target_is_received_in_place():
    target = torch.zeros(3)
    place = Place([target])
    direct = place.direct(12)
    direct[:] = bytes(bytes_of(torch.arange(3.0)))
    place.write(direct, 0)
    assert target.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("count", "size"), [(2, 12), (1, 8), (1, 0)])
def test_otherwise_it_is_copied(count, size):
    targets = [torch.zeros(3) for _ in range(count)]
    place = Place(targets)
    assert place.direct(size) is None
    place.write(bytes_of(torch.arange(4.0)), 4)
    assert all(target.tolist() == [1, 2, 3] for target in targets)


def test_a_ticket_gives_its_result_or_raises_its_error():
    ticket = Ticket()
    ticket.result = 5
    assert ticket.value() == 5
    ticket.error = JobError("gone")
    with pytest.raises(JobError, match="gone"):
        ticket.value()


@pytest.mark.parametrize("memory", [torch.float32, torch.uint8])
def test_a_cast_value_is_widened_into_every_target(memory):
    half = torch.tensor([9.0, 0.1, 65504.0]).half()
    targets = [torch.zeros(2), torch.zeros(2)]
    place = Place([target.view(memory) for target in targets])
    place.write_cast(bytes_of(half), 2, torch.float16)
    assert all(target.tolist() == half[1:].float().tolist() for target in targets)
