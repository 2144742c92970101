import pytest
import torch
from tests.collective.bank.crew import Crew, values
from tests.collective.bank.test_reducing import checked

from bireme.collective.bank import moving
from bireme.errors import MismatchError

DTYPES = [torch.float32, torch.bool, torch.bfloat16, torch.complex128]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_broadcast(size):
    with Crew(size, 4096, 2**32 - 5) as crew:
        for dtype in DTYPES:
            for length in (0, 3, 4000):
                root = size - 1

                def work(bank, dtype=dtype, length=length, root=root):
                    tensor = values(bank.rank, length, dtype)
                    moving.broadcast(bank, tensor, root, 20)
                    return tensor

                for got in checked(crew.run(work)):
                    assert torch.equal(got, values(root, length, dtype))


@pytest.mark.parametrize("lengths", [[6, 6, 6], [3000, 3000, 3000], [0, 5000, 2], [0, 0, 0]])
def test_all_gather_of_equal_and_unequal_sizes(lengths):
    with Crew(3, 4096) as crew:

        def work(bank):
            outputs = [torch.zeros(length) for length in lengths]
            source = values(bank.rank, lengths[bank.rank], torch.float32)
            moving.all_gather(bank, source, outputs, 20)
            return outputs

        for outputs in checked(crew.run(work)):
            for rank, got in enumerate(outputs):
                assert torch.equal(got, values(rank, lengths[rank], torch.float32))


def test_all_gather_where_the_source_lies_in_the_output():
    with Crew(2) as crew:

        def work(bank):
            outputs = [torch.full((4,), 0.5 + rank) for rank in range(2)]
            moving.all_gather(bank, outputs[bank.rank], outputs, 20)
            return [each[0].item() for each in outputs]

        assert crew.run(work) == [[0.5, 1.5]] * 2


def test_all_gather_with_a_size_that_another_does_not_expect():
    with Crew(3) as crew:

        def work(bank):
            mine = 4 if bank.rank == 2 else 3
            outputs = [torch.zeros(3) for _ in range(3)]
            moving.all_gather(bank, torch.ones(mine), outputs, 20)

        assert [type(each) for each in crew.run(work)] == [MismatchError] * 3


@pytest.mark.parametrize("length", [0, 3, 4000])
def test_gather_and_scatter(length):
    with Crew(3, 4096) as crew:

        def there(bank):
            outputs = [torch.zeros(length) for _ in range(3)] if bank.rank == 1 else None
            moving.gather(bank, values(bank.rank, length, torch.float32), outputs, 1, 20)
            return outputs

        gathered = checked(crew.run(there))
        assert gathered[0] is gathered[2] is None
        for rank, got in enumerate(gathered[1]):
            assert torch.equal(got, values(rank, length, torch.float32))

        def back(bank):
            output = torch.zeros(length)
            moving.scatter(bank, gathered[1] if bank.rank == 1 else None, output, 1, 20)
            return output

        for rank, got in enumerate(checked(crew.run(back))):
            assert torch.equal(got, values(rank, length, torch.float32))


@pytest.mark.parametrize("are_equal", [True, False])
@pytest.mark.parametrize("length", [0, 5, 3000])
def test_all_to_all_of_equal_sizes(length, are_equal):
    with Crew(3, 4096) as crew:

        def work(bank):
            inputs = [values(10 * bank.rank + q, length, torch.int16) for q in range(3)]
            outputs = [torch.zeros(length, dtype=torch.int16) for _ in range(3)]
            moving.all_to_all(bank, inputs, outputs, 20, are_equal=are_equal)
            return outputs

        for rank, outputs in enumerate(checked(crew.run(work))):
            for source, got in enumerate(outputs):
                assert torch.equal(got, values(10 * source + rank, length, torch.int16))


def test_all_to_all_of_unequal_sizes():
    sizes = [[3, 0, 5000], [1, 2, 0], [0, 0, 700]]
    with Crew(3, 4096) as crew:

        def work(bank):
            inputs = [
                values(10 * bank.rank + q, sizes[bank.rank][q], torch.float32) for q in range(3)
            ]
            outputs = [torch.zeros(sizes[p][bank.rank]) for p in range(3)]
            moving.all_to_all(bank, inputs, outputs, 20)
            return outputs

        for rank, outputs in enumerate(checked(crew.run(work))):
            for source, got in enumerate(outputs):
                want = values(10 * source + rank, sizes[source][rank], torch.float32)
                assert torch.equal(got, want)


def test_all_to_all_with_a_size_that_is_not_awaited_is_told_to_all():
    with Crew(3) as crew:

        def work(bank):
            inputs = [torch.ones(1 + (bank.rank == 0 and q == 2)) for q in range(3)]
            moving.all_to_all(bank, inputs, [torch.ones(1) for _ in range(3)], 20)

        for error in crew.run(work):
            assert isinstance(error, MismatchError)
            assert "rank 0 sends 8 bytes to rank 2, which awaits 4" in str(error)


def test_a_barrier_holds_until_the_last_one():
    arrived = []
    with Crew(4) as crew:

        def work(bank):
            for number in range(20):
                arrived.append(number)
                moving.barrier(bank, 20)
                if arrived.count(number) != 4:
                    return number
            return "done"

        assert crew.run(work) == ["done"] * 4
