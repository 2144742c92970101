import torch
from torch import nn

from bireme.train.lineup import Lineup
from bireme.train.marks import Marks


def make():
    lineup = Lineup([nn.Linear(1, 1) for _ in range(2)])
    for module in lineup.modules:
        module(torch.ones(1, 1)).sum().backward()
    return lineup, Marks(lineup)


def test_a_mark_holds_until_a_backward_pass_on_any_replica():
    lineup, marks = make()
    marks.add([0, 1])
    assert marks.without([0, 1]) == []
    # Reaches the bias only.
    lineup.modules[1].bias.sum().backward()
    assert marks.without([0, 1]) == [1]
    marks.add([1])
    assert marks.any([1])
    marks.clear()
    assert marks.without([0, 1]) == [0, 1]
    assert not marks.any([0, 1])


def test_a_mark_does_not_hold_for_another_tensor():
    lineup, marks = make()
    marks.add([0])
    lineup.params[0][0].grad = torch.ones(1, 1)
    assert marks.without([0]) == [0]
    lineup.params[0][0].grad = None
    assert not marks.any([0])


def test_changes_in_place_are_seen_and_keep_the_mark():
    lineup, marks = make()
    marks.add([0, 1])
    assert not marks.any_changed([0, 1])
    lineup.params[0][1].grad.mul_(0.5)
    assert marks.any_changed([0, 1])
    assert not marks.any_changed([0])
    assert marks.without([0, 1]) == []


def test_frozen_parameters_are_marked_without_a_watch():
    lineup, marks = make()
    for param in lineup.same(0):
        param.requires_grad_(False)
    marks.add([0])
    assert marks.any([0])


def test_only_gradients_can_be_marked():
    lineup, marks = make()
    lineup.params[0][0].grad = None
    marks.add([0])
    assert not marks.any([0])
