import pytest

from bireme.errors import JobAborted
from bireme.kvstore.pending import Pending


def test_what_was_done_at_once_is_done():
    pending = Pending()
    assert pending.done
    pending.wait()


def test_it_is_finished_once():
    calls = []
    over = False
    pending = Pending(lambda: calls.append(1), lambda: over)
    assert not pending.done
    pending.wait()
    pending.wait()
    assert pending.done
    assert calls == [1]


def test_its_error_is_raised_each_time():
    def fail():
        raise JobAborted("the job is over")

    pending = Pending(fail, lambda: True)
    for _ in range(2):
        with pytest.raises(JobAborted, match="the job is over"):
            pending.wait()
    assert pending.done
