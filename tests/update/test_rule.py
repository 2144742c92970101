import pytest
import torch

from bireme.update.layout import Layout
from bireme.update.rule import Rule, Update, UpdaterRule


def update(key, merged: float = 1.0, stored: float = 1.0) -> Update:
    return Update(key, torch.full((2,), merged), torch.full((2,), stored))


def test_arguments_and_order():
    seen = []
    rule: Rule = UpdaterRule(lambda key, merged, stored: seen.append((key, merged[0].item())))
    rule.check("a", Layout.of("a", torch.zeros(2, dtype=torch.int8)), row_sparse=True)
    rule.apply([update("a", 1), update("b", 2)])
    assert seen == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_puts_everything_back(error):
    updates = [update("a", stored=1), update("b", stored=2), update("c", stored=3)]

    def spoil(key, merged, stored):
        stored.fill_(9)
        if key == "b":
            raise error("no")

    with pytest.raises(error, match="no"):
        UpdaterRule(spoil).apply(updates)
    assert [each.stored[0].item() for each in updates] == [1, 2, 3]


def test_values_that_require_grad_are_no_trouble():
    each = Update("a", torch.ones(2, requires_grad=True), torch.ones(2))
    UpdaterRule(lambda key, merged, stored: stored.add_(merged)).apply([each])
    assert not each.stored.requires_grad
