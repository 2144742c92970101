import pytest
import torch

from bireme.errors import ConfigError
from bireme.horovod.common.process_sets import ProcessSet, global_process_set, id_of


def test_the_global_set_knows_its_ranks_once_the_job_is_up(hvd):
    assert global_process_set.ranks == [0]
    assert (global_process_set.size(), global_process_set.rank()) == (1, 0)
    assert global_process_set.included()
    assert id_of(global_process_set) == 0


@pytest.mark.parametrize("bad", [3, None, ["0"], [0.5], [True]])
def test_a_set_is_made_of_ranks(bad):
    with pytest.raises(ConfigError, match="ProcessSet should be initialized"):
        ProcessSet(bad)


def test_a_set_is_unknown_until_it_is_added_and_after_it_is_removed(hvd):
    chosen = ProcessSet([0])
    assert (chosen.size(), chosen.rank(), chosen.process_set_id) == (None, None, None)
    assert chosen.included()
    with pytest.raises(ValueError, match="not known to the job"):
        hvd.allreduce(torch.ones(1), process_set=chosen)
    # The set of these ranks exists: it is that of all.
    with pytest.raises(ValueError, match="already"):
        hvd.add_process_set(chosen)
    assert not hvd.remove_process_set(chosen)
    assert not hvd.remove_process_set(hvd.global_process_set)


def test_ranks_that_the_job_does_not_have_are_refused(hvd):
    with pytest.raises(ValueError, match="ranks are integers >= 0 and < 1"):
        hvd.add_process_set([0, 1])
    with pytest.raises(ValueError, match="at least one"):
        hvd.add_process_set([])


def test_a_set_tells_what_it_is():
    assert str(ProcessSet([2, 0])) == "ProcessSet(process_set_id=None, ranks=[0, 2])"


def test_init_makes_the_sets_known_that_it_is_given(hvd):
    hvd.shutdown()
    everybody = hvd.ProcessSet([0])
    hvd.init(process_sets=[everybody])
    assert everybody.process_set_id == 0
    assert hvd.allreduce(torch.ones(1), process_set=everybody) == 1
