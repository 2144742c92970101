import pytest
import torch.distributed as dist

from bireme.collective.bank.elements import Reduction
from bireme.collective.reductions import reduction_of
from bireme.errors import UnsupportedError


@pytest.mark.parametrize("name", ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"])
def test_reductions_have_one_name_here_and_there(name):
    assert reduction_of(getattr(dist.ReduceOp, name)) is Reduction[name]


@pytest.mark.parametrize("op", [dist.ReduceOp.PREMUL_SUM, []])
def test_operations_that_we_do_not_have(op):
    with pytest.raises(UnsupportedError, match="does not compute"):
        reduction_of(op)
