from bireme.sim.relaying import FloatSums
from bireme.sim.values import pack, unpack
from bireme.types.dtypes import DType


def test_sums_are_weighed_before_they_are_added():
    sums = FloatSums()
    first = sums.first(DType.FLOAT64, pack([1.0, 3.0]), 0.5)
    total = sums.merge(DType.FLOAT64, first, sums.first(DType.FLOAT64, pack([1.0, 1.0]), 1.0))
    assert unpack(total) == [1.5, 2.5]
    assert sums.copy(total) == total
    assert sums.sum_itemsize(DType.FLOAT64) == 8
