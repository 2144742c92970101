import multiprocessing
import threading

import pytest

from bireme.kvstore.reduce.crew import Crew


def test_helpers_work_beside_the_caller():
    meeting = threading.Barrier(3)
    seen = set()

    def work() -> None:
        meeting.wait(10)
        seen.add(threading.get_ident())

    Crew().run(work, num_threads=3)
    assert len(seen) == 3
    assert threading.get_ident() in seen


def test_error_of_a_helper_reaches_the_caller():
    meeting = threading.Barrier(2)
    caller = threading.get_ident()

    def work() -> None:
        meeting.wait(10)
        if threading.get_ident() != caller:
            raise ValueError("in a helper")

    with pytest.raises(ValueError, match="in a helper"):
        Crew().run(work, num_threads=2)


def test_more_helpers_when_asked():
    crew = Crew()
    for num_threads in (2, 4, 2):
        meeting = threading.Barrier(num_threads)
        crew.run(lambda meeting=meeting: meeting.wait(10), num_threads)


def _child(crew: Crew, results) -> None:
    meeting = threading.Barrier(2)
    crew.run(lambda: meeting.wait(10), num_threads=2)
    results.put("done")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_threads_are_made_again_after_a_fork():
    context = multiprocessing.get_context("fork")
    crew, results = Crew(), context.Queue()
    _child(crew, results)
    assert results.get(timeout=10) == "done"
    child = context.Process(target=_child, args=(crew, results))
    child.start()
    assert results.get(timeout=20) == "done"
    child.join(10)
    assert child.exitcode == 0
