import torch

from bireme.kvstore.reduce.overlap import are_disjoint


def test_are_disjoint():
    whole = torch.zeros(12)
    assert are_disjoint([])
    assert are_disjoint([whole])
    assert are_disjoint([whole[6:], whole[:3], whole[3:6], torch.zeros(2)])
    assert not are_disjoint([whole, whole])
    assert not are_disjoint([whole, whole[5:6]])
    assert not are_disjoint([whole[:4], torch.zeros(2), whole[3:]])


def test_strided_views_are_not_judged():
    whole = torch.zeros(12)
    assert not are_disjoint([whole[::2], whole[1::2]])


def test_empty_tensors_share_nothing():
    assert are_disjoint([torch.zeros(0), torch.zeros(0), torch.zeros(3)])
