import pytest

from bireme.horovod.runner.util.threads import in_thread


def test_a_function_runs_in_a_thread_of_its_own():
    seen = []
    thread = in_thread(seen.append, (3,), name="t")
    thread.join(10)
    assert (seen, thread.name, thread.daemon) == ([3], "t", True)


def test_exceptions_may_vanish():
    thread = in_thread(lambda: 1 / 0, silent=True)
    thread.join(10)
    assert not thread.is_alive()


def test_arguments_are_a_tuple():
    with pytest.raises(ValueError, match=r"write \(arg,\)"):
        in_thread(print, "x")
