"""Data for training: who gets which samples, and readers for small real data sets.

Numpy only. Training scripts wrap the arrays in tensors themselves.
"""

from bireme.data.arrays import LabelledImages as LabelledImages
from bireme.data.balanced import BalancedBatchSampler as BalancedBatchSampler
from bireme.data.cifar10 import load_cifar10 as load_cifar10
from bireme.data.digits import load_digits as load_digits
from bireme.data.idx import load_mnist as load_mnist
from bireme.data.idx import read_idx as read_idx
from bireme.data.sharding import ShardSampler as ShardSampler

__all__ = (
    "BalancedBatchSampler",
    "LabelledImages",
    "ShardSampler",
    "load_cifar10",
    "load_digits",
    "load_mnist",
    "read_idx",
)
