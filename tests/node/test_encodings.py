import pytest
import torch

from bireme.compress import create
from bireme.errors import ConfigError
from bireme.node.encodings import decoder, element_type, encoding_of

WAYS = [
    {"type": "2bit", "threshold": 0.1},
    {"type": "2bit", "threshold": 1e-7},
    {"type": "1bit", "threshold": -0.3},
    {"type": "fp16"},
    {"type": "bf16"},
]


@pytest.mark.parametrize("how", WAYS, ids=str)
def test_a_name_says_all_that_a_server_needs(how):
    sender = create(how)
    grad = torch.linspace(-1, 1, 101)
    code, _ = sender.compress(grad, sender.init(grad))
    name = encoding_of(sender)
    assert len(name) <= 32
    assert code.data.dtype is element_type(name)
    assert torch.equal(decoder(name).decompress(code), sender.decompress(code))


@pytest.mark.parametrize("name", ["zip", "2bit:x", "2bit:-1", ""])
def test_unknown_names(name):
    with pytest.raises(ConfigError):
        decoder(name)
