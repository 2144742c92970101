from bireme.sim.training import Training, canonical_sum, gradient, reference


def test_the_order_of_additions_shows_in_the_gradients():
    parts = {rank: gradient((0, 0), rank, 0, [0.0] * 50) for rank in range(4)}
    total = canonical_sum(4, parts)
    by_rank = [((a + b) + c) + d for a, b, c, d in zip(*parts.values(), strict=True)]
    assert total != by_rank


def test_the_reference_scales_for_those_who_are_missing():
    training = Training(num_steps=1, rate=None, gradient=lambda *_: [1.0])
    assert reference(training, 4, {(0, 0): 1}) == {(0, 0): [4.0]}
    without = reference(training, 4, {(0, 0): 1}, lambda _, rank: rank != 2)
    assert without == {(0, 0): [4.0]}


def test_the_rate_changes_at_its_step():
    training = Training(rate=-0.4, change_rate_at=2)
    assert [training.rate_at(step) for step in range(4)] == [-0.4, -0.4, -0.4, -0.2]
