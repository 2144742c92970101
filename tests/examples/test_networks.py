import runpy

import pytest
import torch
from tests.examples.conftest import EXAMPLES

BUILDERS = runpy.run_path(str(EXAMPLES / "networks.py"))["BUILDERS"]


@pytest.mark.parametrize("network", sorted(BUILDERS))
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (2, 9, 31)])
def test_takes_images_of_any_size(network, shape):
    assert BUILDERS[network](shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(
    ("network", "shape", "count"),
    [
        ("lenet", (1, 28, 28), 431_080),  # as Caffe's
        ("mlp", (1, 28, 28), 109_386),
        ("resnet18", (3, 32, 32), 11_173_962),
        ("vgg11", (3, 32, 32), 9_228_362),
    ],
)
def test_number_of_parameters(network, shape, count):
    net = BUILDERS[network](shape, 10)
    assert sum(param.numel() for param in net.parameters()) == count
