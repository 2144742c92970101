import threading

import pytest
import torch
from torch import nn

from bireme.errors import JobAborted, StateError
from bireme.kvstore.pending import Pending
from bireme.train.arrivals import Arrivals
from bireme.train.lineup import Lineup


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))


class Tower:
    """Arrivals of a model, and what they deliver."""

    def __init__(self, model, *, watched=True):
        self.delivered = []
        self.arrivals = Arrivals(Lineup(model), self._deliver, watched=watched)

    def _deliver(self, index, result):
        self.delivered.append((index, result.tolist()))


def test_nothing_is_delivered_before_the_step_is_taken(model):
    tower = Tower(model)
    tower.arrivals.add(Pending(), {0: torch.ones(1)})
    tower.arrivals.land()
    assert tower.delivered == []
    assert not tower.arrivals.any_due
    tower.arrivals.release()
    assert tower.arrivals.is_due(0)
    tower.arrivals.land([0, 3])
    assert tower.delivered == [(0, [1.0])]
    assert not tower.arrivals.any_due


def test_only_what_is_needed_is_waited_for(model):
    tower = Tower(model)
    waited = []
    for index in range(3):
        pending = Pending(lambda index=index: waited.append(index), lambda: False)
        tower.arrivals.add(pending, {index: torch.full((1,), float(index))})
    tower.arrivals.release()
    tower.arrivals.land([1])
    assert (waited, tower.delivered) == ([1], [(1, [1.0])])
    assert sorted(tower.arrivals.due()) == [0, 2]
    tower.arrivals.land()
    assert sorted(tower.delivered) == [(0, [0.0]), (1, [1.0]), (2, [2.0])]


def test_results_of_one_call_come_together_and_once_whoever_asks(model):
    tower = Tower(model)
    gate = threading.Event()
    tower.arrivals.add(
        Pending(gate.wait, gate.is_set), {index: torch.ones(1) for index in range(4)}
    )
    tower.arrivals.release()
    threads = [threading.Thread(target=tower.arrivals.land, args=([i],)) for i in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
    assert sorted(index for index, _ in tower.delivered) == [0, 1, 2, 3]


def test_a_parameter_that_was_changed_meanwhile_is_refused(model):
    tower = Tower(model)
    tower.arrivals.add(Pending(), {0: torch.ones(1), 1: torch.ones(1)})
    tower.arrivals.release()
    with torch.no_grad():
        model[0].weight.add_(1)
    with pytest.raises(StateError, match=r"'0\.weight'.*synchronize"):
        tower.arrivals.land()
    assert tower.delivered == [(1, [1.0])]
    tower.arrivals.land()


def test_gradients_may_be_overwritten_by_anybody(model):
    tower = Tower(model, watched=False)
    tower.arrivals.add(Pending(), {0: torch.ones(1)})
    tower.arrivals.release()
    with torch.no_grad():
        model[0].weight.add_(1)
    tower.arrivals.land()
    assert tower.delivered == [(0, [1.0])]


def test_errors_reach_whoever_needs_the_result(model):
    def fail():
        raise JobAborted("over")

    tower = Tower(model)
    tower.arrivals.add(Pending(fail, lambda: True), {0: torch.ones(1)})
    tower.arrivals.release()
    for _ in range(2):
        with pytest.raises(JobAborted):
            tower.arrivals.land([0])
    assert tower.delivered == []
