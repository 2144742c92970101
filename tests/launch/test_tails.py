"""The report of a failure shows what its process said last."""

from bireme.launch.tails import TAIL_LINES, Tails
from bireme.types import worker


def test_standard_error_comes_first():
    tails = Tails()
    assert tails.report(worker(0)) == ("", "; it had printed nothing")
    tails.add(worker(0), ["out"], is_error=False)
    assert tails.report(worker(0))[1] == "; its last lines:\n    out"
    tails.add(worker(0), [str(i) for i in range(50)], is_error=True)
    assert tails.of(worker(0)) == [str(i) for i in range(50 - TAIL_LINES, 50)]
    assert tails.of(worker(1)) == []


def test_who_else_is_to_blame():
    tails = Tails()
    tails.add(worker(0), ["bireme.errors.JobAborted: W[1] on leda: killed"], is_error=True)
    assert tails.report(worker(0))[0] == ", because of W[1] on leda: killed"
