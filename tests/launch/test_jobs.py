"""Notes of running jobs are private, and do not outlive their launcher."""

import os
import subprocess
import sys

import pytest

from bireme.errors import ConfigError
from bireme.launch.jobs import JobNote, noted, notes_folder, running_jobs


def note(job="job-1"):
    return JobNote(job, 1, "tcp://127.0.0.1:9091", "hush" * 4, "", "auth", ("python",), 2, 1)


def test_a_note_lasts_as_long_as_the_job(tmp_path):
    folder = tmp_path / "notes"
    assert running_jobs(folder) == []
    with noted(note("b"), folder) as path, noted(note("a"), folder):
        assert running_jobs(folder) == [note("a"), note("b")]
        assert path.stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
    assert running_jobs(folder) == []
    assert list(folder.iterdir()) == []


def test_a_note_of_a_killed_launcher_is_cleared_away(tmp_path):
    code = (
        "import os, sys, pathlib\n"
        "from bireme.launch.jobs import JobNote, noted\n"
        "note = JobNote('dead', 1, 'a', 's', '', 'auth', (), 1, 1)\n"
        "with noted(note, pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "n")], timeout=30, check=False)
    assert run.returncode == -9
    assert (tmp_path / "n" / "dead.json").exists()
    assert running_jobs(tmp_path / "n") == []
    assert not (tmp_path / "n" / "dead.json").exists()


def test_a_folder_of_others_is_not_trusted(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(ConfigError, match="not this user's alone"):
        running_jobs(folder)
    (tmp_path / "link").symlink_to(tmp_path)
    with (
        pytest.raises(ConfigError, match="not this user's alone"),
        noted(note(), tmp_path / "link"),
    ):
        pass


def test_a_name_that_is_taken_is_refused(tmp_path):
    with noted(note(), tmp_path / "n"):
        with pytest.raises(ConfigError, match="cannot note the job"), noted(note(), tmp_path / "n"):
            pass
        assert running_jobs(tmp_path / "n") == [note()]


def test_what_is_no_note_is_passed_over(tmp_path):
    folder = tmp_path / "n"
    with noted(note(), folder):
        (folder / "empty.json").touch()
        assert running_jobs(folder) == [note()]


def test_where_notes_are(tmp_path):
    assert notes_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "bireme"
    assert notes_folder({"XDG_RUNTIME_DIR": "/no/such"}).name == f"bireme-{os.getuid()}"
    assert notes_folder({}) == notes_folder({"XDG_RUNTIME_DIR": ""})


def test_the_secret_is_not_shown():
    assert "hush" not in repr(note())
