import json

import pytest

from bireme.cli import main
from bireme.observe.timeline import Timeline


def test_files_of_a_job_are_joined(tmp_path, capsys):
    for rank in range(2):
        Timeline(tmp_path / f"t.worker{rank}.json", f"worker {rank}").write()
    files = [str(path) for path in sorted(tmp_path.glob("t.*.json"))]
    assert main(["timeline", *files, "-o", str(tmp_path / "all.json")]) == 0
    assert "2 events of 2 processes" in capsys.readouterr().out
    names = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
    assert [each["args"]["name"] for each in names] == ["worker 0", "worker 1"]


def test_a_bad_file_is_one_line(tmp_path, capsys):
    assert main(["timeline", str(tmp_path / "none"), "-o", str(tmp_path / "all.json")]) == 2
    assert "is no timeline" in capsys.readouterr().err


def test_the_output_must_be_named(capsys):
    with pytest.raises(SystemExit):
        main(["timeline", "a.json"])
