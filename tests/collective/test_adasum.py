"""The adaptive sum against a plain computation, for any number of ranks."""

import pytest
import torch
from tests.collective.ranks import LIMIT_S, on_ranks, started

from bireme.types import ReduceOp


def pairwise(one, two):
    both, ones, twos = one.dot(two), one.dot(one), two.dot(two)
    left = 1 - both / (2 * ones) if ones > 1e-150 else 1
    right = 1 - both / (2 * twos) if twos > 1e-150 else 1
    return left * one + right * two


def reference(vectors):
    """Fold the ranks beyond a power of two, then combine neighbours, pairs of pairs..."""
    num_main = 1 << (len(vectors).bit_length() - 1)
    vectors = [vector.double() for vector in vectors]
    for extra in range(num_main, len(vectors)):
        vectors[extra - num_main] = pairwise(vectors[extra - num_main], vectors[extra])
    vectors = vectors[:num_main]
    while len(vectors) > 1:
        vectors = [pairwise(*vectors[at : at + 2]) for at in range(0, len(vectors), 2)]
    return vectors[0]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
def test_any_number_of_ranks(size):
    generator = torch.Generator().manual_seed(size)
    with started(size) as engines:
        for length in (1, 2, 7, 64, 1001):
            vectors = [
                torch.randn(length, generator=generator, dtype=torch.float64) for _ in range(size)
            ]
            results = on_ranks(
                size,
                lambda rank, given=vectors: (
                    engines[rank]
                    .allreduce([given[rank]], names=["a"], op=ReduceOp.ADASUM)
                    .wait(LIMIT_S)[0]
                ),
            )
            expected = reference(vectors)
            for result in results:
                torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)],
    ids=str,
)
def test_types_that_are_narrower(dtype, tolerance):
    vectors = [torch.linspace(-1, 1, 50).roll(7 * rank).to(dtype) for rank in range(3)]
    with started(3) as engines:
        results = on_ranks(
            3,
            lambda rank: (
                engines[rank]
                .allreduce([vectors[rank]], names=["a"], op=ReduceOp.ADASUM)
                .wait(LIMIT_S)[0]
            ),
        )
    for result in results:
        assert result.dtype is dtype
        torch.testing.assert_close(
            result.double(), reference(vectors), rtol=tolerance, atol=tolerance
        )


def test_orthogonal_vectors_are_added_and_equal_ones_averaged():
    with started(2) as engines:

        def run(vectors):
            return on_ranks(
                2,
                lambda rank: (
                    engines[rank]
                    .allreduce([vectors[rank]], names=["a"], op=ReduceOp.ADASUM)
                    .wait(LIMIT_S)[0]
                ),
            )[1]

        assert run([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])]).tolist() == [1.0, 2.0]
        assert run([torch.tensor([3.0, 1.0])] * 2).tolist() == [3.0, 1.0]
        assert run([torch.zeros(2), torch.tensor([3.0, 1.0])]).tolist() == [3.0, 1.0]
        one, two = torch.tensor([1 + 1j, 0]), torch.tensor([0, 2j])
        assert run([one, two]).tolist() == [1 + 1j, 2j]
