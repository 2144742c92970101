import pytest
import torch

from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.tables.options import TableOptions


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "name"),
        ({"name": 3}, "name"),
        ({"dim": 0}, "dim"),
        ({"dim": True}, "dim"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"num_rows": 0}, "num_rows"),
        ({"max_rows": 0}, "max_rows"),
        ({"init": "xavier"}, "uniform, normal"),
        ({"eviction": "fifo"}, "refuse, lru, lfu"),
        ({"scale": float("nan")}, "scale"),
        ({"scale": "big"}, "scale"),
    ],
)
def test_wrong_options_are_named(change, text):
    with pytest.raises(ConfigError, match=text):
        TableOptions(**{"name": "t", "dim": 2, **change})


def test_element_types():
    with pytest.raises(UnsupportedError, match="float32 or float64"):
        TableOptions("t", 2, dtype=torch.float16)


def test_the_rows_of_a_limit_are_dealt_to_servers():
    specs = TableOptions("t", 2, max_rows=11, eviction="lru").specs(3)
    assert [spec.max_rows for spec in specs] == [4, 4, 3]
    assert [(spec.index, spec.num_slots) for spec in specs] == [(0, 3), (1, 3), (2, 3)]
    with pytest.raises(ConfigError, match="max_rows=2"):
        TableOptions("t", 2, max_rows=2).specs(3)


def test_a_digest_tells_tables_apart():
    options = [
        TableOptions("t", 2),
        TableOptions("u", 2),
        TableOptions("t", 3),
        TableOptions("t", 2, seed=1),
        TableOptions("t", 2, scale=0.5),
        TableOptions("t", 2, num_rows=5),
        TableOptions("t", 2, dtype=torch.float64),
    ]
    assert len({each.digest() for each in options}) == len(options)
    assert TableOptions("t", 2).digest() == options[0].digest()
