import pytest
import torch

from bireme.errors import StateError, UnsupportedError
from bireme.kvstore import LocalStore


def test_no_compression():
    with LocalStore() as store:
        with pytest.raises(UnsupportedError, match=r"create\('device'\)"):
            store.set_gradient_compression({"type": "2bit"})
        store.set_gradient_compression(None)
    with pytest.raises(StateError, match="closed"):
        store.set_gradient_compression(None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_values_from_cuda_are_summed_on_the_host():
    with LocalStore() as store:
        store.init(0, torch.zeros(1000, device="cuda"))
        outs = [torch.empty(1000, device="cuda"), torch.empty(1000)]
        store.push(0, [torch.ones(1000, device="cuda"), torch.ones(1000)])
        store.pull(0, outs)
        assert store.pull(0).device.type == "cpu"
        assert all((out == 2).all() for out in outs)
