import io
import os
import subprocess
import sys
import types

import pytest

from bireme.errors import ConfigError
from bireme.horovod import running
from bireme.horovod.objects import from_bytes, to_bytes
from bireme.horovod.running_worker import call, work


@pytest.fixture
def one_by_one(monkeypatch):
    """Do what the launcher would, rank after rank in this process, until one fails."""
    commands = []

    def start(command, env):
        commands.append((command, dict(env)))
        num_proc, folder = int(command[command.index("-np") + 1]), running.Path(command[-1])
        for rank in range(num_proc):
            status = work(folder, rank)
            if status:
                return status, ""
        return 0, ""

    monkeypatch.setattr(running, "_start", start)
    return commands


def test_results_come_in_the_order_of_ranks(one_by_one):
    seen = []
    assert running.run(lambda a, *, b: (a, b), (1,), {"b": 2}, num_proc=3) == [(1, 2)] * 3
    assert seen == []


def test_the_command_and_its_environment(one_by_one):
    running.run(lambda: None, num_proc=2, options=("-H", "a:2"), env={"X": "1"}, executable="/py")
    ((command, env),) = one_by_one
    assert command[:8] == [sys.executable, "-m", "bireme", "run", "-np", "2", "-H", "a:2"]
    assert command[8:-1] == ["--", "/py", "-m", "bireme.horovod.running_worker"]
    assert env["X"] == "1"


def test_an_exception_comes_back_with_its_rank_and_traceback(one_by_one):
    def guilty():
        raise KeyError("spoon")

    with pytest.raises(RuntimeError, match=r"rank 0 raised KeyError: 'spoon'") as caught:
        running.run(guilty, num_proc=2)
    assert "in guilty" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.rank == 0


def test_an_exception_that_cannot_travel_is_told_in_words(one_by_one):
    class Odd(Exception):
        def __init__(self):
            super().__init__("odd")
            self.lock = (each for each in ())

    def guilty():
        raise Odd

    with pytest.raises(RuntimeError, match="rank 0 raised Odd: odd") as caught:
        running.run(guilty)
    assert caught.value.__cause__ is None


def test_a_result_that_cannot_travel_is_an_error_of_the_function(one_by_one):
    with pytest.raises(RuntimeError, match="rank 0 raised TypeError: cannot pickle"):
        running.run(lambda: (each for each in ()))


def test_a_process_that_dies_without_a_word(monkeypatch):
    monkeypatch.setattr(running, "_start", lambda *_: (9, "killed\n"))
    with pytest.raises(running.FunctionFailed, match=r"exit code 9 .* ranks \[0, 1\].*\nkilled"):
        running.run(print, num_proc=2)


FOLLOWED = "HorovodInternalError: rank 1 has shut down"


@pytest.mark.parametrize(
    ("texts", "blamed"),
    [
        ({0: FOLLOWED, 1: "ValueError: no"}, "rank 1 raised ValueError: no"),
        ({0: FOLLOWED}, r"exit code 3 and without results of ranks \[1\]"),
        ({0: FOLLOWED, 1: "HorovodInternalError: rank 0 has shut down"}, "rank 0 raised Horovod"),
        ({1: "ValueError: late", 0: "ValueError: early"}, "rank 1 raised ValueError: late"),
    ],
    ids=["raised", "exited", "both", "oldest"],
)
def test_who_only_followed_is_not_to_blame(tmp_path, texts, blamed):
    for age, (rank, text) in enumerate(texts.items()):
        path = tmp_path / f"failure.{rank}"
        path.write_bytes(to_bytes(running.Failure(text, "", b"")))
        os.utime(path, ns=(age, age))
    with pytest.raises(running.FunctionFailed, match=blamed):
        running._results(tmp_path, 2, 3, "")


@pytest.mark.parametrize("num_proc", [0, -1, 1.5, True, None])
def test_num_proc_is_a_count(num_proc):
    with pytest.raises(ConfigError, match="integer >= 1"):
        running.run(print, num_proc=num_proc)


def test_there_must_be_something_to_call():
    with pytest.raises(ConfigError, match="something to call, got 3"):
        running.run(3)


def test_a_function_of_a_module_that_others_cannot_import_is_sent_with_its_code():
    module = types.ModuleType("nowhere_to_be_found")
    exec("def answer(x):\n    return x + 41\n", module.__dict__)
    sys.modules[module.__name__] = module
    try:
        task = running._task(module.answer, (1,), {})
    finally:
        del sys.modules[module.__name__]
    assert call(from_bytes(to_bytes(task))) == 42


def test_output_goes_where_this_process_writes_now(monkeypatch, capsys):
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    status, said = running._start([sys.executable, "-c", code], {})
    assert (status, said) == (3, "err\n")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("out\n", "err\n")


def test_an_interrupt_ends_the_job(monkeypatch):
    started = []
    real = subprocess.Popen.wait

    def wait(process, timeout=None):
        started.append(process)
        if len(started) == 1:
            raise KeyboardInterrupt
        return real(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with pytest.raises(KeyboardInterrupt):
        running._start([sys.executable, "-c", "import time; time.sleep(60)"], {})
    assert started[0].returncode is not None
