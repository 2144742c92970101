import re

import pytest

pytestmark = pytest.mark.slow


def test_it_learns_the_digits(run_example):
    printed = run_example("horovod_mnist.py", "--epochs", "4")
    (last,) = re.findall(r"epoch 4: ([\d.]+)%", printed)
    assert float(last) > 90
