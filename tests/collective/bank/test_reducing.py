from itertools import pairwise

import pytest
import torch
from tests.collective.bank.crew import Crew, values

from bireme.collective.bank.elements import Reduction, elements_of
from bireme.collective.bank.reducing import (
    all_reduce,
    all_reduce_joint,
    all_reduce_many,
    cut,
    reduce,
    reduce_scatter,
)
from bireme.errors import MismatchError, UnsupportedError

LENGTHS = [0, 1, 63, 1000, 40_000]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex64]
OPS = [Reduction.SUM, Reduction.AVG, Reduction.MIN, Reduction.MAX, Reduction.PRODUCT]


def folded(tensors, op):
    """The result that every algorithm must give, to the bit."""
    elements = elements_of(tensors[0].dtype, op)
    out = torch.empty_like(tensors[0])
    elements.fold([elements.of(each) for each in tensors], elements.of(out), op)
    return out


def checked(results):
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def test_runs_cover_everything_once():
    for length in (0, 1, 64, 65, 1000):
        for num_runs in (1, 2, 3, 7):
            runs = cut(length, num_runs)
            assert runs[0][0] == 0
            assert runs[-1][1] == length
            assert all(a[1] == b[0] for a, b in pairwise(runs))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_all_reduce_gives_the_fold_whatever_the_way(size):
    # Small areas: long tensors take many pieces. With and without the way for small tensors.
    for flat_bytes in (0, 1 << 13):
        with Crew(size, 1 << 13, 2**32 - 20, flat_bytes) as crew:
            for dtype in DTYPES:
                for length in LENGTHS:
                    tensors = [values(rank, length, dtype) for rank in range(size)]
                    want = folded(tensors, Reduction.SUM)

                    def work(bank, dtype=dtype, length=length):
                        tensor = values(bank.rank, length, dtype)
                        all_reduce(bank, tensor, Reduction.SUM, 20)
                        return tensor

                    for got in checked(crew.run(work)):
                        assert torch.equal(got, want), (flat_bytes, dtype, length)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_many_tensors_give_what_one_of_them_all_gives(size):
    # Some ranks have many tensors, in other places, the rest one.
    for flat_bytes in (0, 1 << 13):
        with Crew(size, 1 << 13, 2**32 - 20, flat_bytes) as crew:
            for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
                for lengths in ([0, 0], [3, 0, 60, 1], [1000, 0, 7], [40_000, 1, 64, 3333]):
                    total = sum(lengths)
                    want = folded([values(r, total, dtype) for r in range(size)], Reduction.SUM)

                    def work(bank, dtype=dtype, lengths=lengths, total=total):
                        whole = values(bank.rank, total, dtype)
                        if bank.rank == 1:
                            all_reduce(bank, whole, Reduction.SUM, 20)
                            return whole
                        sources = [each.clone() for each in whole.split(lengths)]
                        kept = [each.clone() for each in sources]
                        into = sources if bank.rank else [torch.empty_like(s) for s in sources]
                        all_reduce_many(bank, sources, into, Reduction.SUM, 20)
                        if not bank.rank:
                            assert all(map(torch.equal, sources, kept))
                        return torch.cat(into)

                    for got in checked(crew.run(work)):
                        assert torch.equal(got, want), (flat_bytes, dtype, lengths)


def test_factors_are_each_ranks_own():
    with Crew(2, 1 << 13, 0, 256) as crew:
        for lengths in ([3, 4], [3000, 5000]):

            def work(bank, lengths=lengths):
                tensors = [torch.full((each,), 1.0 + bank.rank) for each in lengths]
                all_reduce_many(bank, tensors, tensors, Reduction.SUM, 20, (2.0, 0.25))
                return torch.cat(tensors)

            for got in checked(crew.run(work)):
                assert got.unique().tolist() == [1.5]


def test_every_operation():
    with Crew(3, 1 << 13) as crew:
        for op in OPS:
            for length in (10, 9000):
                tensors = [values(rank, length, torch.float32) for rank in range(3)]
                want = folded(tensors, op)

                def work(bank, op=op, length=length):
                    tensor = values(bank.rank, length, torch.float32)
                    all_reduce(bank, tensor, op, 20)
                    return tensor

                for got in checked(crew.run(work)):
                    assert torch.equal(got, want)


def test_bits():
    with Crew(3) as crew:
        for op in (Reduction.BAND, Reduction.BOR, Reduction.BXOR):

            def work(bank, op=op):
                tensor = torch.tensor([0b0110 << bank.rank, bank.rank], dtype=torch.int32)
                all_reduce(bank, tensor, op, 20)
                return tensor.tolist()

            rows = [[0b0110 << rank, rank] for rank in range(3)]
            want = {
                Reduction.BAND: [rows[0][i] & rows[1][i] & rows[2][i] for i in (0, 1)],
                Reduction.BOR: [rows[0][i] | rows[1][i] | rows[2][i] for i in (0, 1)],
                Reduction.BXOR: [rows[0][i] ^ rows[1][i] ^ rows[2][i] for i in (0, 1)],
            }[op]
            assert crew.run(work) == [want] * 3


def test_reduce_changes_the_root_only():
    with Crew(3, 1 << 13) as crew:
        for length in (5, 20_000):
            want = folded([values(rank, length, torch.float32) for rank in range(3)], "sum")

            def work(bank, length=length):
                tensor = values(bank.rank, length, torch.float32)
                reduce(bank, tensor, 1, Reduction.SUM, 20)
                return tensor

            for rank, got in enumerate(checked(crew.run(work))):
                assert torch.equal(got, want if rank == 1 else values(rank, length, torch.float32))


@pytest.mark.parametrize("lengths", [[5, 5, 5], [0, 7000, 300], [0, 0, 0]])
def test_reduce_scatter_of_equal_and_unequal_parts(lengths):
    def part(rank, target):
        return values(10 * rank + target, lengths[target], torch.float32)

    with Crew(3, 1 << 13) as crew:

        def work(bank):
            inputs = [part(bank.rank, target) for target in range(3)]
            kept = [each.clone() for each in inputs]
            output = torch.full((lengths[bank.rank],), -1.0)
            reduce_scatter(bank, inputs, output, Reduction.SUM, 20)
            assert all(torch.equal(a, b) for a, b in zip(inputs, kept, strict=True))
            return output

        for rank, got in enumerate(checked(crew.run(work))):
            assert torch.equal(got, folded([part(other, rank) for other in range(3)], "sum"))


def test_what_cannot_be_computed_is_refused_before_anybody_waits():
    with Crew(2) as crew, pytest.raises(UnsupportedError, match="no order"):
        all_reduce(crew.banks[0], torch.ones(2, dtype=torch.complex64), Reduction.MIN, 20)


def test_two_runs_give_the_same_bits():
    found = []
    for flat_bytes in (0, 1 << 20):
        with Crew(4, 1 << 20, 0, flat_bytes) as crew:

            def work(bank):
                generator = torch.Generator().manual_seed(bank.rank)
                tensor = torch.randn(5000, generator=generator) * 10**bank.rank
                all_reduce(bank, tensor, Reduction.SUM, 20)
                return tensor

            found += checked(crew.run(work))
    assert all(torch.equal(found[0], each) for each in found[1:])


def _joint(crew, tensors, op=Reduction.SUM):
    """Let every rank have its first ``tensors[rank]`` at hand, until the first rank has none."""

    def work(bank):
        mine = tensors[bank.rank]
        counts = []
        while mine:
            counts.append(all_reduce_joint(bank, mine, op, 20))
            mine = mine[counts[-1] :]
        return counts

    return crew.run(work)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_joint_operations_are_as_one_after_the_other(dtype):
    lengths = [5, 0, 100, 1, 3000, 7]
    op = Reduction.MAX if dtype is torch.bool else Reduction.SUM
    tensors = [[values(7 * r + i, n, dtype) for i, n in enumerate(lengths)] for r in range(3)]
    expected = [[each.clone() for each in mine] for mine in tensors]
    with Crew(3) as crew:
        assert _joint(crew, tensors, op) == [[6]] * 3
        crew.run(lambda bank: [all_reduce(bank, t, op, 20) for t in expected[bank.rank]])
    for mine, theirs in zip(tensors, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert torch.equal(one, other)


def test_as_many_are_joined_as_all_have_at_hand():
    tensors = [[torch.full((n,), float(r + 1)) for n in (4, 5, 6, 7)] for r in range(3)]

    def work(bank):
        mine = tensors[bank.rank]
        at_hand = [4, 2, 3][bank.rank]
        done = [all_reduce_joint(bank, mine[:at_hand], Reduction.SUM, 20)]
        at_hand = [2, 0, 1][bank.rank]
        if at_hand:
            done += [all_reduce_joint(bank, mine[2:][:at_hand], Reduction.SUM, 20)]
        else:
            all_reduce(bank, mine[2], Reduction.SUM, 20)
        all_reduce(bank, mine[3], Reduction.SUM, 20)
        return done

    with Crew(3) as crew:
        assert crew.run(work) == [[2, 1], [2], [2, 1]]
    assert all(set(each.tolist()) == {6.0} for mine in tensors for each in mine)


def test_only_as_many_are_joined_as_have_room():
    tensors = [[torch.ones(1000) for _ in range(5)] for _ in range(2)]
    with Crew(2, area_bytes=8192) as crew:
        assert _joint(crew, tensors) == [[2, 2, 1]] * 2
    assert all(set(each.tolist()) == {2.0} for mine in tensors for each in mine)
    tensors = [[torch.ones(1) for _ in range(50)] for _ in range(2)]
    with Crew(2) as crew:
        assert _joint(crew, tensors) == [[32, 18]] * 2


def test_what_differs_ends_a_joint_run_and_is_told_at_its_turn():
    tensors = [[torch.ones(3), torch.ones(4 + r), torch.ones(5)] for r in range(2)]

    def work(bank):
        mine = tensors[bank.rank]
        done = [all_reduce_joint(bank, mine, Reduction.SUM, 20)]
        with pytest.raises(MismatchError, match="different operations"):
            all_reduce_joint(bank, mine[1:], Reduction.SUM, 20)
        return [*done, all_reduce_joint(bank, mine[2:], Reduction.SUM, 20)]

    with Crew(2) as crew:
        assert crew.run(work) == [[1, 1]] * 2
    assert tensors[0][1].tolist() == [1.0] * 4
    assert tensors[0][2].tolist() == [2.0] * 5
