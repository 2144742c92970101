"""The rule of shards agrees with the tree that sums along them."""

import pytest

from bireme.core.slots import Crew
from bireme.errors import ConfigError
from bireme.types.shards import check_shards, span_of
from bireme.wire.messages import JobConfig


def tree_takes(num_workers, num_shards):
    crew = Crew(num_workers, num_shards)
    try:
        for rank in range(num_workers):
            crew.tree.node(*crew.span(rank))
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("num_workers", range(1, 18))
def test_refused_is_what_the_tree_cannot_cut(num_workers):
    for num_shards in range(1, 70):
        assert [span_of(rank, num_workers, num_shards) for rank in range(num_workers)] == [
            Crew(num_workers, num_shards).span(rank) for rank in range(num_workers)
        ]
        if tree_takes(num_workers, num_shards):
            check_shards(num_workers, num_shards)
            JobConfig(num_workers, 1, num_shards)
        else:
            with pytest.raises(ConfigError, match=f"{num_shards} shards cannot be cut"):
                JobConfig(num_workers, 1, num_shards)


def test_what_the_message_advises_is_taken():
    for num_workers in range(1, 300):
        for factor in (1, 2, 4):
            check_shards(num_workers, num_workers * factor)
