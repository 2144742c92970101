import subprocess
import sys

import pytest
import torch

from bireme.compress import bits_numba, bits_torch
from bireme.compress.bits import bits_for
from bireme.errors import UnsupportedError


def test_the_device_chooses():
    assert bits_for(torch.device("cpu")) is bits_numba
    assert bits_for(torch.device("cuda", 3)) is bits_torch


def test_other_devices_are_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"no bit codes for device meta.*cpu, cuda"):
        bits_for(torch.device("meta"))


@pytest.mark.slow
def test_numba_is_not_imported_until_a_cpu_tensor_is_compressed():
    program = (
        "import sys, torch, bireme.compress as c\n"
        "assert 'numba' not in sys.modules\n"
        "k = c.create({'type': '2bit'}); g = torch.zeros(3); k.compress(g, k.init(g))\n"
        "assert 'numba' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
