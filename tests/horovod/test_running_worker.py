import sys

from bireme.horovod import alias, running_worker
from bireme.horovod.objects import from_bytes, to_bytes
from bireme.horovod.running import Task


def task(function, *args, path=(), is_aliased=False):
    return Task(to_bytes((function, args, {})), tuple(path), is_aliased)


def test_a_result_is_left_under_the_rank_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "task").write_bytes(to_bytes(task(lambda x: x * 2, 21)))
    assert running_worker.main(["worker", str(tmp_path)]) == 0
    assert from_bytes((tmp_path / "result.1").read_bytes()) == 42
    assert sorted(each.name for each in tmp_path.iterdir()) == ["result.1", "task"]


def test_a_failure_is_left_and_shown(tmp_path, capsys):
    (tmp_path / "task").write_bytes(to_bytes(task(lambda: 1 / 0)))
    assert running_worker.work(tmp_path, 0) == 1
    failure = from_bytes((tmp_path / "failure.0").read_bytes())
    assert failure.text == "ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_imports_are_the_callers(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_script.py").write_text("answer = 42\n")

    def function():
        import beside_the_script

        import horovod

        return beside_the_script.answer, horovod.__name__

    try:
        result = running_worker.call(task(function, path=[str(tmp_path)], is_aliased=True))
    finally:
        alias.uninstall()
    assert result == (42, "bireme.horovod")
    assert sys.path[0] == str(tmp_path)
