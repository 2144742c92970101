"""The place of a process among the ranks."""

import pytest

from bireme.errors import ConfigError
from bireme.types import ReduceOp, Topology


def test_numbers_of_reductions_are_those_that_horovod_scripts_hold():
    assert [(op.name, int(op)) for op in ReduceOp] == [
        ("AVERAGE", 0),
        ("SUM", 1),
        ("ADASUM", 2),
        ("MIN", 3),
        ("MAX", 4),
        ("PRODUCT", 5),
    ]


def test_ranks_of_one_machine():
    place = Topology.on_one_machine(1, 3)
    assert (place.rank, place.size, place.local_rank, place.local_size) == (1, 3, 1, 3)
    assert (place.cross_rank, place.cross_size, place.is_homogeneous) == (0, 1, True)


@pytest.mark.parametrize("field", ["rank", "local_rank", "cross_rank"])
def test_refuses_ranks_out_of_range(field):
    fields = {
        "rank": 0,
        "size": 1,
        "local_rank": 0,
        "local_size": 1,
        "cross_rank": 0,
        "cross_size": 1,
    }
    for value in (-1, 1):
        with pytest.raises(ConfigError, match=field):
            Topology(**(fields | {field: value}))
