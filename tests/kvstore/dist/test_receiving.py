import torch
from tests.kvstore.dist.test_entry import make

from bireme.kvstore.dist.receiving import Receipt
from bireme.node.memory import bytes_of


def fill(receipt, value, spans):
    raw = bytes_of(value)
    for span in spans:
        place = receipt.places()[span.slot]
        place.write(raw, 4 * span.offset)
    receipt.finish()


def test_every_kind_of_target():
    entry = make((2, 3), 3, 3)
    plain, turned = torch.zeros(2, 3), torch.zeros(3, 2).T
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    version = plain._version
    fill(Receipt(entry, [turned, plain, parameter]), torch.arange(6.0), entry.spans)
    for out in (plain, turned, parameter.detach()):
        assert out.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert plain._version > version


def test_only_targets_that_cannot_be_written_directly():
    entry, out = make((2, 3), 6), torch.zeros(3, 2).T
    fill(Receipt(entry, [out]), torch.arange(6.0), entry.spans)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5]]
