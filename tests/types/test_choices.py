"""Choices are their own names, on the wire and in the environment."""

import pytest

from bireme.types import Consistency, DeathPolicy, Layout


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (Consistency, {"sync", "async", "bounded"}),
        (DeathPolicy, {"abort", "continue", "wait"}),
        (Layout, {"dense", "rows", "table"}),
    ],
)
def test_names(cls, names):
    assert {str(choice) for choice in cls} == names
