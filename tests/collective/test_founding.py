from datetime import timedelta

import pytest
from torch.distributed import HashStore

from bireme.collective.founding import found_group
from bireme.errors import WaitTimeout


def test_a_rank_that_does_not_come_is_named():
    with pytest.raises(WaitTimeout, match="ranks 0, 2 did not come"):
        found_group(HashStore(), 1, 3, timedelta(seconds=0.3))


def test_a_group_of_one():
    group = found_group(HashStore(), 0, 1, timedelta(seconds=5))
    group.barrier().wait()
    group.shutdown()
