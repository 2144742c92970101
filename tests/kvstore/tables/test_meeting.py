import pytest
import torch

from bireme.errors import ConfigError, StateError
from bireme.kvstore.tables.meeting import Meeting
from bireme.kvstore.tables.options import TableOptions

MINE, OTHER = TableOptions("t", 2), TableOptions("t", 3)


class Rest:
    """The other workers of two: what they add, and what is told of rank 0's work."""

    def __init__(self, options=MINE):
        self.options = options
        self.met = []
        self.outcomes = []

    def add(self, name, tensor):
        self.met.append(name)
        missing = torch.frombuffer(bytearray(self.options.digest()), dtype=torch.uint8)
        if tensor.dim() == 2:
            return torch.where(tensor.any(1, keepdim=True).bool(), tensor, missing)
        return tensor

    def share_outcome(self, error):
        self.outcomes.append(error)
        if error is not None:
            raise error

    def refuse_closed(self):
        raise StateError("closed")


def meeting(rank, rest):
    return Meeting(rank, 2, rest.add, rest.share_outcome, rest.refuse_closed)


@pytest.mark.parametrize("rank", [0, 1])
def test_all_hear_whose_options_differ(rank):
    meeting(rank, Rest()).compare("table 1", MINE)
    with pytest.raises(ConfigError, match=r"'t' .* another one on W\[1\] than on W\[0\]"):
        meeting(rank, Rest(OTHER)).compare("table 1", MINE)


def test_only_rank_0_works_once_all_have_met():
    rest, done = Rest(), []
    meeting(0, rest).rank_0_does(lambda: done.append(list(rest.met)))
    meeting(1, rest).rank_0_does(lambda: done.append("rank 1"))
    assert done == [["meeting"]]
    assert rest.outcomes == [None, None]


@pytest.mark.parametrize("error", [ConfigError("no such folder"), OSError("disk full")])
def test_what_rank_0_meets_with_is_shared(error):
    rest = Rest()

    def work():
        raise error

    with pytest.raises(type(error)):
        meeting(0, rest).rank_0_does(work)
    assert rest.outcomes == [error]


def test_a_closed_store_refuses():
    with pytest.raises(StateError, match="closed"):
        meeting(0, Rest()).refuse_closed()
