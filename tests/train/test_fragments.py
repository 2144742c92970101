import torch
from torch import nn

from bireme import kvstore
from bireme.consistency.local import LocalSteps
from bireme.train.exchange import Exchange
from bireme.train.fragments import Fragment
from bireme.train.lineup import Lineup
from bireme.train.local_update import outer_optimizer


def make(net, **local):
    steps = LocalSteps(**local)
    store = kvstore.create("dist_local", local=steps)
    store.set_optimizer(outer_optimizer(steps))
    return store, Fragment(Exchange(Lineup(net), store), steps)


def line(weight):
    net = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([weight]))
    return net


def test_what_changes_during_an_exchange_is_mixed_with_what_arrives():
    net = line([1.0, 2.0])
    store, fragment = make(net, lr=0.5, delay=2, every=4, mixing=0.25)
    fragment.take_in([0])
    assert fragment.size == 2
    fragment.samples = 3.0
    with torch.no_grad():
        net.weight += 4.0
        fragment.leave(due=9)
        net.weight += 1.0
    assert (fragment.due, fragment.samples) == (9, 0.0)
    fragment.arrive()
    # The servers went half of the way: 1 + 2 and 2 + 2; here it is 6 and 7.
    assert net.weight.tolist() == [[0.25 * 6 + 0.75 * 3, 0.25 * 7 + 0.75 * 4]]
    assert fragment.due is None
    assert store.pull("trainer0/weight").tolist() == [[3.0, 4.0]]
    store.close()


def test_elastic_workers_and_centre_pull_each_other():
    net = line([0.0, 8.0])
    store, fragment = make(net, outer="elastic", lr=0.25)
    fragment.take_in([0])
    fragment.samples = 1.0
    with torch.no_grad():
        net.weight += 4.0
        fragment.leave(due=1)
    assert net.weight.tolist() == [[3.0, 11.0]]
    fragment.arrive()
    assert net.weight.tolist() == [[3.0, 11.0]]
    assert store.pull("trainer0/weight").tolist() == [[1.0, 9.0]]
    fragment.settle()
    assert net.weight.tolist() == [[1.0, 9.0]]
    with torch.no_grad():
        net.weight += 2.0
    fragment.samples = 1.0
    fragment.settle()
    # 0.25 of what is left, and then the centre itself.
    assert net.weight.tolist() == [[1.5, 9.5]]
    store.close()


def test_a_part_without_parameters_goes_through_the_motions():
    store, fragment = make(line([0.0, 0.0]))
    fragment.take_in([])
    fragment.leave(due=1)
    fragment.arrive()
    fragment.settle()
    assert fragment.size == 0
    store.close()


def test_half_types():
    net = line([1.0, 2.0]).half()
    store, fragment = make(net)
    fragment.take_in([0])
    fragment.samples = 1.0
    with torch.no_grad():
        net.weight += 1.0
    fragment.leave(due=1)
    fragment.arrive()
    assert net.weight.tolist() == [[2.0, 3.0]]
    store.close()
